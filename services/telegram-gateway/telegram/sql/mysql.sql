-- name: Add
INSERT IGNORE INTO telegram_reply (chat_id, message_id, task_id, name, reply_id, shown, told, leased_until, created_at)
VALUES (?, ?, ?, ?, 0, '', 0, @now, @now)
