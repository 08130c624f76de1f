-- A claim has its lease in its state again, and a process one row: of several of one name the last keeps it.
UPDATE ingest_task_state
SET wake_at = COALESCE((SELECT w.lease_until FROM ingest_worker w WHERE w.no = lease_owner >> 36), wake_at)
WHERE status = 'RUNNING' AND lease_owner <> 0;

DROP VIEW ingest_task;
CREATE TABLE ingest_worker_next (
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL
) STRICT;
INSERT INTO ingest_worker_next (no, name, created_at)
SELECT w.no, CASE WHEN EXISTS (SELECT 1 FROM ingest_worker l WHERE l.name = w.name AND l.no > w.no) THEN substr(w.name, 1, 21) || '~' || w.no ELSE w.name END, w.created_at
FROM ingest_worker w ORDER BY w.no;
DROP TABLE ingest_worker;
ALTER TABLE ingest_worker_next RENAME TO ingest_worker;

CREATE VIEW ingest_task AS
SELECT
  b.id, b.user_id, b.document_id, b.knowledge_base_id, b.file_path, b.workflow_id, b.type, b.channel, b.chat_id,
  b.payload, b.result, b.traceparent, b.idempotency_key, b.request_hash, t.status, t.stage, t.progress,
  t.processed_segments, t.total_segments, t.attempt_count, b.max_attempts, t.crash_count, t.throttle_count,
  t.next_retry_at, b.last_error, b.error_message, b.error_code, t.fence,
  COALESCE(w.name || '/' || (t.lease_owner & 68719476735), '') AS lease_owner,
  CASE WHEN t.status = 'RUNNING' OR t.status IN ('QUEUED', 'RETRYING') AND t.lease_owner <> 0 THEN t.wake_at ELSE '9999-12-31 00:00:00.000000' END AS lease_expires_at,
  CASE t.status WHEN 'SUCCEEDED' THEN '9999-12-31 00:00:00.000000' ELSE t.wake_at END AS wake_at,
  t.promised_at, t.promise_count, t.dlq_state, t.delivery, t.attempt_traceparent, b.created_at,
  t.updated_at, b.request_id
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = b.id
LEFT JOIN ingest_worker w ON w.no = t.lease_owner >> 36;
