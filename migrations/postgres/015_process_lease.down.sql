-- A claim has its lease in its state again, and a process one row: of several of one name the last keeps it.
UPDATE ingest_task_state t
SET wake_at = w.lease_until
FROM ingest_worker w
WHERE w.no = t.lease_owner >> 36 AND t.status = 'RUNNING' AND t.lease_owner <> 0;

CREATE OR REPLACE VIEW ingest_task AS
SELECT
  b.id, b.user_id, b.document_id, b.knowledge_base_id, b.file_path, b.workflow_id, b.type, b.channel, b.chat_id,
  b.payload, b.result, b.traceparent, b.idempotency_key, b.request_hash, t.status, t.stage, t.progress,
  t.processed_segments, t.total_segments, t.attempt_count, b.max_attempts, t.crash_count, t.throttle_count,
  t.next_retry_at, b.last_error, b.error_message, b.error_code, t.fence,
  COALESCE(w.name || '/' || (t.lease_owner & 68719476735), '') AS lease_owner,
  CASE WHEN t.status = 'RUNNING' OR t.status IN ('QUEUED', 'RETRYING') AND t.lease_owner <> 0 THEN t.wake_at ELSE TIMESTAMPTZ '9999-12-31 00:00:00+00' END AS lease_expires_at,
  CASE t.status WHEN 'SUCCEEDED' THEN TIMESTAMPTZ '9999-12-31 00:00:00+00' ELSE t.wake_at END AS wake_at,
  t.promised_at, t.promise_count, t.dlq_state, t.delivery, t.attempt_traceparent, b.created_at,
  t.updated_at, b.request_id
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = CAST(b.id AS uuid)
LEFT JOIN ingest_worker w ON w.no = t.lease_owner >> 36;

UPDATE ingest_worker w
SET name = LEFT(w.name, 21) || '~' || w.no
WHERE EXISTS (SELECT 1 FROM ingest_worker l WHERE l.name = w.name AND l.no > w.no);
ALTER TABLE ingest_worker RESET (fillfactor);
ALTER TABLE ingest_worker DROP COLUMN lease_until, ADD CONSTRAINT ingest_worker_name_key UNIQUE (name);
