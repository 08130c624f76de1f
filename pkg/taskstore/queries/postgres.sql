-- Postgres: rows of a batch come as one JSON array, and the planner finds each task by its primary key.

-- name: Log
INSERT INTO ingest_task_transition (task_id, from_status, to_status, reason, attempt_count, crash_count, fence, timeline,
  actor, message, lease_expires_at, next_retry_at, delivery, error_code, call_id, created_at)
SELECT t.id, NULLIF(c.from_status, ''), t.status, c.reason, t.attempt_count, t.crash_count, t.fence, ?,
  c.actor, c.message, NULLIF(t.lease_expires_at, @never), t.next_retry_at, CASE t.status WHEN 'RUNNING' THEN t.delivery ELSE '' END, t.error_code, ?, t.updated_at
FROM @json(id text, from_status text, reason text, actor text, message text)
JOIN ingest_task AS t ON t.id = c.id
ORDER BY c.id

-- The instant is the moment that the transaction began with: the caller knows the rows without reading them back.
-- name: Insert
INSERT INTO ingest_task (@include(Made), status, wake_at, promised_at, created_at, updated_at)
SELECT @include(Made), 'QUEUED', CAST(? AS timestamptz), CAST(? AS timestamptz), CAST(? AS timestamptz), CAST(? AS timestamptz)
FROM @json(@include(MadeTypes))
ORDER BY id

-- name: HeartbeatHeld
SELECT t.id
FROM @json(id text, status text, fence bigint, timeline bigint, owner text)
JOIN ingest_task AS t ON t.id = c.id
WHERE t.status = c.status
  AND t.fence = c.fence AND t.lease_owner = c.owner
  AND (SELECT value FROM timeline WHERE timeline.id = 1) = c.timeline

-- name: TransitionsOf
SELECT @include(TransitionColumns)
FROM @json(id text, after bigint)
JOIN ingest_task_transition AS l ON l.task_id = c.id AND l.id > c.after
ORDER BY l.id
LIMIT ?
