-- SQLite: rows of a batch come as one JSON array; times are text, made by mw_add.

-- name: Update
UPDATE ingest_task AS t
SET
  status = c.to_status,
  fence = c.new_fence,
  attempt_count = c.attempt_count,
  crash_count = c.crash_count,
  throttle_count = c.throttle_count,
  next_retry_at = CASE WHEN c.retry_in IS NULL THEN t.next_retry_at WHEN c.retry_in >= 9000000000000000 THEN NULL ELSE mw_add(@now, c.retry_in) END,
  lease_expires_at = CASE WHEN c.lease_in IS NULL THEN t.lease_expires_at WHEN c.lease_in >= 9000000000000000 THEN @never ELSE mw_add(@now, c.lease_in) END,
  wake_at = CASE WHEN c.wake_in IS NULL THEN t.wake_at WHEN c.wake_in >= 9000000000000000 THEN @never ELSE mw_add(@now, c.wake_in) END,
  promised_at = CASE WHEN c.promise_in IS NULL THEN t.promised_at WHEN c.promise_in >= 9000000000000000 THEN @never ELSE mw_add(@now, c.promise_in) END,
  lease_owner = c.lease_owner,
  promise_count = c.promise_count,
  dlq_state = c.dlq_state,
  delivery = c.delivery,
  attempt_traceparent = COALESCE(c.attempt_traceparent, t.attempt_traceparent),
  stage = c.stage,
  progress = c.progress,
  processed_segments = c.processed,
  total_segments = c.total,
  last_error = CASE c.texts WHEN 1 THEN c.last_error ELSE t.last_error END,
  error_message = CASE c.texts WHEN 1 THEN c.error_message ELSE t.error_message END,
  error_code = CASE c.texts WHEN 1 THEN c.error_code ELSE t.error_code END,
  result = CASE c.texts WHEN 1 THEN c.result ELSE t.result END,
  updated_at = @now
FROM (
  SELECT
    value ->> 'id' AS id, value ->> 'from' AS from_status, value ->> 'fence' AS fence, value ->> 'owner' AS owner,
    value ->> 'to' AS to_status, value ->> 'new_fence' AS new_fence, value ->> 'attempts' AS attempt_count,
    value ->> 'crashes' AS crash_count, value ->> 'throttles' AS throttle_count,
    value ->> 'retry' AS retry_in, value ->> 'lease' AS lease_in, value ->> 'wake' AS wake_in, value ->> 'promise' AS promise_in,
    value ->> 'lease_owner' AS lease_owner, value ->> 'promises' AS promise_count, value ->> 'dlq' AS dlq_state,
    value ->> 'delivery' AS delivery, value ->> 'attempt_traceparent' AS attempt_traceparent, value ->> 'stage' AS stage, value ->> 'percent' AS progress,
    value ->> 'processed' AS processed, value ->> 'total' AS total, value ->> 'texts' AS texts,
    value ->> 'last_error' AS last_error, value ->> 'error_message' AS error_message,
    value ->> 'error_code' AS error_code, value ->> 'result' AS result
  FROM json_each(?)
) AS c
WHERE t.id = c.id
  AND t.status = c.from_status AND t.fence = c.fence AND t.lease_owner = c.owner
  AND (SELECT value FROM timeline WHERE timeline.id = 1) = ?

-- name: Log
INSERT INTO ingest_task_transition (task_id, from_status, to_status, reason, attempt_count, crash_count, fence, timeline,
  actor, message, lease_expires_at, next_retry_at, delivery, error_code, call_id, created_at)
SELECT t.id, c.value ->> 'from', t.status, c.value ->> 'reason', t.attempt_count, t.crash_count, t.fence, ?,
  c.value ->> 'actor', c.value ->> 'message', NULLIF(t.lease_expires_at, @never), t.next_retry_at, CASE t.status WHEN 'RUNNING' THEN t.delivery ELSE '' END, t.error_code, ?, t.updated_at
FROM json_each(?) c
CROSS JOIN ingest_task t ON t.id = c.value ->> 'id'
ORDER BY c.key

-- The instant is the moment that the transaction began with: the caller knows the rows without reading them back.
-- name: Insert
INSERT INTO ingest_task (id, user_id, document_id, knowledge_base_id, file_path, workflow_id, type, channel, chat_id,
  payload, traceparent, request_id, idempotency_key, request_hash, status, max_attempts, wake_at, promised_at, created_at, updated_at)
SELECT value ->> 'id', value ->> 'user', value ->> 'document', value ->> 'base', value ->> 'file', value ->> 'workflow',
  value ->> 'type', value ->> 'channel', value ->> 'chat', value ->> 'payload', value ->> 'traceparent', value ->> 'request',
  value ->> 'key', value ->> 'hash', 'QUEUED', value ->> 'max', ?, ?, ?, ?
FROM json_each(?)
ORDER BY key

-- name: Heartbeat
UPDATE ingest_task AS t
SET
  lease_expires_at = CASE c.renew WHEN 1 THEN mw_add(@now, c.lease_in) ELSE t.lease_expires_at END,
  wake_at = CASE c.renew WHEN 1 THEN mw_add(@now, c.lease_in) ELSE t.wake_at END,
  updated_at = CASE WHEN c.stage IS NULL OR (t.stage = c.stage AND t.progress = c.progress AND t.processed_segments = c.processed AND t.total_segments = c.total)
    THEN t.updated_at ELSE @now END,
  stage = COALESCE(c.stage, t.stage),
  progress = COALESCE(c.progress, t.progress),
  processed_segments = COALESCE(c.processed, t.processed_segments),
  total_segments = COALESCE(c.total, t.total_segments)
FROM (
  SELECT
    value ->> 'id' AS id, value ->> 'status' AS status, value ->> 'fence' AS fence, value ->> 'timeline' AS timeline,
    value ->> 'owner' AS owner, value ->> 'renew' AS renew, value ->> 'lease' AS lease_in,
    value ->> 'stage' AS stage, value ->> 'percent' AS progress, value ->> 'processed' AS processed, value ->> 'total' AS total
  FROM json_each(?)
) AS c
WHERE t.id = c.id
  AND t.status = c.status
  AND t.fence = c.fence AND t.lease_owner = c.owner
  AND CAST((SELECT value FROM timeline WHERE timeline.id = 1) AS TEXT) = c.timeline

-- name: HeartbeatHeld
SELECT t.id
FROM json_each(?) c
CROSS JOIN ingest_task t ON t.id = c.value ->> 'id'
WHERE t.status = c.value ->> 'status'
  AND t.fence = c.value ->> 'fence' AND t.lease_owner = c.value ->> 'owner'
  AND CAST((SELECT value FROM timeline WHERE timeline.id = 1) AS TEXT) = c.value ->> 'timeline'

-- name: TransitionsOf
SELECT @transitions
FROM json_each(?) c
CROSS JOIN ingest_task_transition l ON l.task_id = c.value ->> 'id' AND l.id > c.value ->> 'after'
ORDER BY l.id
LIMIT ?

-- name: SweepUntil
<= mw_add(@now, ?)
