-- Postgres: rows of a batch come as one JSON array.

-- name: Update
UPDATE ingest_task AS t
SET
  status = c."to",
  fence = c.new_fence,
  attempt_count = c.attempts,
  crash_count = c.crashes,
  throttle_count = c.throttles,
  next_retry_at = CASE WHEN c.retry IS NULL THEN t.next_retry_at WHEN c.retry >= 9000000000000000 THEN NULL ELSE @now + c.retry * INTERVAL '1 microsecond' END,
  lease_expires_at = CASE WHEN c.lease IS NULL THEN t.lease_expires_at WHEN c.lease >= 9000000000000000 THEN @never ELSE @now + c.lease * INTERVAL '1 microsecond' END,
  wake_at = CASE WHEN c.wake IS NULL THEN t.wake_at WHEN c.wake >= 9000000000000000 THEN @never ELSE @now + c.wake * INTERVAL '1 microsecond' END,
  promised_at = CASE WHEN c.promise IS NULL THEN t.promised_at WHEN c.promise >= 9000000000000000 THEN @never ELSE @now + c.promise * INTERVAL '1 microsecond' END,
  lease_owner = c.lease_owner,
  promise_count = c.promises,
  dlq_state = c.dlq,
  delivery = c.delivery,
  attempt_traceparent = COALESCE(c.attempt_traceparent, t.attempt_traceparent),
  stage = c.stage,
  progress = c.percent,
  processed_segments = c.processed,
  total_segments = c.total,
  last_error = CASE c.texts WHEN 1 THEN c.last_error ELSE t.last_error END,
  error_message = CASE c.texts WHEN 1 THEN c.error_message ELSE t.error_message END,
  error_code = CASE c.texts WHEN 1 THEN c.error_code ELSE t.error_code END,
  result = CASE c.texts WHEN 1 THEN c.result ELSE t.result END,
  updated_at = @now
FROM json_to_recordset(CAST(? AS json)) AS c (
  id text, "from" text, fence bigint, owner text, "to" text, new_fence bigint,
  attempts integer, crashes integer, throttles integer, retry bigint, lease bigint, wake bigint, promise bigint,
  lease_owner text, promises integer, dlq text, delivery text, attempt_traceparent text, stage text, percent integer, processed integer, total integer,
  texts integer, last_error text, error_message text, error_code text, result text)
WHERE t.id = c.id
  AND t.status = c."from" AND t.fence = c.fence AND t.lease_owner = c.owner
  AND (SELECT value FROM timeline WHERE id = 1) = ?

-- name: Log
INSERT INTO ingest_task_transition (task_id, from_status, to_status, reason, attempt_count, crash_count, fence, timeline,
  actor, message, lease_expires_at, next_retry_at, delivery, error_code, call_id, created_at)
SELECT t.id, c."from", t.status, c.reason, t.attempt_count, t.crash_count, t.fence, ?,
  c.actor, c.message, NULLIF(t.lease_expires_at, @never), t.next_retry_at, CASE t.status WHEN 'RUNNING' THEN t.delivery ELSE '' END, t.error_code, ?, t.updated_at
FROM json_to_recordset(CAST(? AS json)) AS c (id text, "from" text, reason text, actor text, message text)
JOIN ingest_task AS t ON t.id = c.id
ORDER BY c.id

-- The instant is the moment that the transaction began with: the caller knows the rows without reading them back.
-- name: Insert
INSERT INTO ingest_task (id, user_id, document_id, knowledge_base_id, file_path, workflow_id, type, channel, chat_id,
  payload, traceparent, request_id, idempotency_key, request_hash, status, max_attempts, wake_at, promised_at, created_at, updated_at)
SELECT c.id, c."user", c.document, c.base, c.file, c.workflow, c.type, c.channel, c.chat,
  c.payload, c.traceparent, c.request, c.key, c.hash, 'QUEUED', c.max, CAST(? AS timestamptz), CAST(? AS timestamptz), CAST(? AS timestamptz), CAST(? AS timestamptz)
FROM json_to_recordset(CAST(? AS json)) AS c (
  id text, "user" text, document text, base text, file text, workflow text, type text, channel text, chat text,
  payload text, traceparent text, request text, key text, hash text, max integer)
ORDER BY c.id

-- name: Heartbeat
UPDATE ingest_task AS t
SET
  lease_expires_at = CASE c.renew WHEN 1 THEN @now + c.lease * INTERVAL '1 microsecond' ELSE t.lease_expires_at END,
  wake_at = CASE c.renew WHEN 1 THEN @now + c.lease * INTERVAL '1 microsecond' ELSE t.wake_at END,
  updated_at = CASE WHEN c.stage IS NULL OR (t.stage = c.stage AND t.progress = c.percent AND t.processed_segments = c.processed AND t.total_segments = c.total)
    THEN t.updated_at ELSE @now END,
  stage = COALESCE(c.stage, t.stage),
  progress = COALESCE(c.percent, t.progress),
  processed_segments = COALESCE(c.processed, t.processed_segments),
  total_segments = COALESCE(c.total, t.total_segments)
FROM json_to_recordset(CAST(? AS json)) AS c (
  id text, status text, fence bigint, timeline bigint, owner text, renew integer, lease bigint,
  stage text, percent integer, processed integer, total integer)
WHERE t.id = c.id
  AND t.status = c.status
  AND t.fence = c.fence AND t.lease_owner = c.owner
  AND (SELECT value FROM timeline WHERE id = 1) = c.timeline

-- name: HeartbeatHeld
SELECT t.id
FROM json_to_recordset(CAST(? AS json)) AS c (id text, status text, fence bigint, timeline bigint, owner text)
JOIN ingest_task AS t ON t.id = c.id
WHERE t.status = c.status
  AND t.fence = c.fence AND t.lease_owner = c.owner
  AND (SELECT value FROM timeline WHERE id = 1) = c.timeline

-- name: TransitionsOf
SELECT @transitions
FROM json_to_recordset(CAST(? AS json)) AS c (id text, after bigint)
JOIN ingest_task_transition AS l ON l.task_id = c.id AND l.id > c.after
ORDER BY l.id
LIMIT ?

-- name: SweepUntil
<= @now + CAST(? AS bigint) * INTERVAL '1 microsecond'

-- The number is Millweir's own; the lock belongs to one database.
