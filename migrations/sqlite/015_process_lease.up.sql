-- One lease a process (design D22): a row of ingest_worker for every start of a process, and until when it holds all that it has
-- claimed. wake_at of a claim says nothing any more: the view shows the process's. Services of the version before are stopped meanwhile.

DROP VIEW ingest_task;
CREATE TABLE ingest_worker_next (
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  lease_until TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;
INSERT INTO ingest_worker_next (no, name, lease_until, created_at)
SELECT w.no, w.name, COALESCE((SELECT MAX(t.wake_at) FROM ingest_task_state t WHERE t.status = 'RUNNING' AND t.lease_owner >> 36 = w.no), w.created_at), w.created_at
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
  CASE WHEN t.status = 'RUNNING' AND t.lease_owner <> 0 THEN w.lease_until
    WHEN t.status = 'RUNNING' OR t.status IN ('QUEUED', 'RETRYING') AND t.lease_owner <> 0 THEN t.wake_at ELSE '9999-12-31 00:00:00.000000' END AS lease_expires_at,
  CASE WHEN t.status = 'SUCCEEDED' THEN '9999-12-31 00:00:00.000000' WHEN t.status = 'RUNNING' AND t.lease_owner <> 0 THEN w.lease_until ELSE t.wake_at END AS wake_at,
  t.promised_at, t.promise_count, t.dlq_state, t.delivery, t.attempt_traceparent, b.created_at,
  t.updated_at, b.request_id
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = b.id
LEFT JOIN ingest_worker w ON w.no = t.lease_owner >> 36;
