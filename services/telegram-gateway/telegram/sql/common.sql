-- name: Add
INSERT INTO telegram_reply (chat_id, message_id, task_id, name, reply_id, shown, told, leased_until, created_at)
VALUES (?, ?, ?, ?, 0, '', 0, @now, @now)
ON CONFLICT DO NOTHING

-- Replies of tasks that have not ended, or whose end was not told.
-- name: Open
SELECT chat_id, message_id, task_id, name, reply_id, shown, leased_until
FROM telegram_reply
WHERE told = 0 AND leased_until <= @now AND (chat_id > ? OR chat_id = ? AND message_id > ?)
ORDER BY chat_id, message_id
LIMIT ?

-- A row that shows nothing was not told anything yet.
-- name: CountOpen
SELECT COUNT(*), MIN(CASE WHEN shown = '' THEN created_at END), @now
FROM telegram_reply
WHERE told = 0

-- name: Lease
UPDATE telegram_reply SET leased_until = @in(?) WHERE chat_id = ? AND message_id = ? AND told = 0 AND leased_until = ?

-- name: Shown
UPDATE telegram_reply SET reply_id = ?, shown = ?, told = ?, leased_until = @now WHERE chat_id = ? AND message_id = ?

-- name: Forget
DELETE FROM telegram_reply WHERE told = 1 AND created_at < @in(?)
