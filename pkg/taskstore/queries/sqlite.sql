-- SQLite: rows of a batch come as one JSON array. CROSS JOIN: the batch leads, and each task is found by its primary key.

-- name: Log
INSERT INTO ingest_task_transition (task_id, from_status, to_status, reason, attempt_count, crash_count, fence, timeline,
  actor, message, lease_expires_at, next_retry_at, delivery, error_code, call_id, created_at)
SELECT t.id, NULLIF(c.value ->> 'from_status', ''), t.status, c.value ->> 'reason', t.attempt_count, t.crash_count, t.fence, ?,
  c.value ->> 'actor', c.value ->> 'message', NULLIF(t.lease_expires_at, @never), t.next_retry_at, CASE t.status WHEN 'RUNNING' THEN t.delivery ELSE '' END, t.error_code, ?, t.updated_at
FROM json_each(?) c
CROSS JOIN ingest_task t ON t.id = c.value ->> 'id'
ORDER BY c.key

-- The instant is the moment that the transaction began with: the caller knows the rows without reading them back.
-- name: Insert
INSERT INTO ingest_task (status, wake_at, promised_at, created_at, updated_at, @include(Made))
SELECT 'QUEUED', ?, ?, ?, ?, @include(Made)
FROM @json(@include(MadeTypes))
ORDER BY id

-- name: HeartbeatHeld
SELECT t.id
FROM json_each(?) c
CROSS JOIN ingest_task t ON t.id = c.value ->> 'id'
WHERE t.status = c.value ->> 'status'
  AND t.fence = c.value ->> 'fence' AND t.lease_owner = c.value ->> 'owner'
  AND CAST((SELECT value FROM timeline WHERE timeline.id = 1) AS TEXT) = c.value ->> 'timeline'

-- name: TransitionsOf
SELECT @include(TransitionColumns)
FROM json_each(?) c
CROSS JOIN ingest_task_transition l ON l.task_id = c.value ->> 'id' AND l.id > c.value ->> 'after'
ORDER BY l.id
LIMIT ?
