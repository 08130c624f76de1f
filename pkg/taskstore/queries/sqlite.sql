-- SQLite: rows of a batch come as one JSON array. CROSS JOIN: the batch leads, and each task is found by its primary key.

-- name: Log
INSERT INTO ingest_task_log (call_no, task_id, attempt_count, crash_count, fence, actor, message, lease_expires_at, next_retry_at, delivery, error_code)
SELECT ?, id, attempt_count, crash_count, fence, actor, message, lease_expires_at, next_retry_at, delivery, error_code
FROM @json(id text, attempt_count bigint, crash_count bigint, fence bigint, actor text, message text, lease_expires_at text,
  next_retry_at text, delivery text, error_code text)

-- The instant is the moment that the transaction began with: the caller knows the rows without reading them back.
-- name: InsertBody
INSERT INTO ingest_task_body (created_at, @include(Made))
SELECT ?, @include(Made)
FROM @json(@include(MadeTypes))
ORDER BY id

-- name: InsertState
INSERT INTO ingest_task_state (status, wake_at, promised_at, updated_at, id)
SELECT 'QUEUED', ?, ?, ?, id
FROM @json(id text)
ORDER BY id

-- name: HeartbeatHeld
SELECT t.id
FROM json_each(?) c
CROSS JOIN ingest_task_state t ON t.id = c.value ->> 'id'
WHERE t.status = c.value ->> 'status'
  AND t.fence = c.value ->> 'fence' AND t.lease_owner = c.value ->> 'owner'
  AND CAST((SELECT value FROM timeline WHERE timeline.id = 1) AS TEXT) = c.value ->> 'timeline'

-- name: TransitionsOf
SELECT @include(TransitionColumns)
FROM json_each(?) b
CROSS JOIN ingest_task_log l ON l.task_id = b.value ->> 'id' AND l.call_no > b.value ->> 'after'
CROSS JOIN ingest_task_call c ON c.no = l.call_no
ORDER BY l.call_no, l.task_id
LIMIT ?

-- name: FileName
b.payload ->> '$.fileName'
