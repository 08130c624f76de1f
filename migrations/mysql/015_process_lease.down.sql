-- A claim has its lease in its state again, and a process one row: of several of one name the last keeps it.
SET @done = (SELECT COUNT(*) = 0 FROM information_schema.columns
              WHERE table_schema = DATABASE() AND table_name = 'ingest_worker' AND column_name = 'lease_until');
SET @step = IF(@done, 'DO 0', 'UPDATE ingest_task_state t JOIN ingest_worker w ON w.no = t.lease_owner >> 36
SET t.wake_at = w.lease_until
WHERE t.status = ''RUNNING'' AND t.lease_owner <> 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW ingest_task AS
SELECT
  b.id, COALESCE(b.user_id) AS user_id, COALESCE(b.document_id) AS document_id,
  COALESCE(b.knowledge_base_id) AS knowledge_base_id, COALESCE(b.file_path) AS file_path,
  COALESCE(b.workflow_id) AS workflow_id, COALESCE(b.type) AS type, COALESCE(b.channel) AS channel,
  COALESCE(b.chat_id) AS chat_id, COALESCE(b.payload) AS payload, COALESCE(b.result) AS result,
  COALESCE(b.traceparent) AS traceparent, COALESCE(b.idempotency_key) AS idempotency_key,
  COALESCE(b.request_hash) AS request_hash, COALESCE(t.status) AS status, COALESCE(t.stage) AS stage,
  COALESCE(t.progress) AS progress, COALESCE(t.processed_segments) AS processed_segments,
  COALESCE(t.total_segments) AS total_segments, COALESCE(t.attempt_count) AS attempt_count,
  COALESCE(b.max_attempts) AS max_attempts, COALESCE(t.crash_count) AS crash_count,
  COALESCE(t.throttle_count) AS throttle_count, COALESCE(t.next_retry_at) AS next_retry_at,
  COALESCE(b.last_error) AS last_error, COALESCE(b.error_message) AS error_message,
  COALESCE(b.error_code) AS error_code, COALESCE(t.fence) AS fence, 
  CASE t.lease_owner WHEN 0 THEN '' ELSE CONCAT(w.name, '/', t.lease_owner & 68719476735) END AS lease_owner,
  CASE WHEN t.status = 'RUNNING' OR t.status IN ('QUEUED', 'RETRYING') AND t.lease_owner <> 0 THEN t.wake_at ELSE TIMESTAMP '9999-12-31 00:00:00' END AS lease_expires_at,
  CASE t.status WHEN 'SUCCEEDED' THEN TIMESTAMP '9999-12-31 00:00:00' ELSE t.wake_at END AS wake_at,
  COALESCE(t.promised_at) AS promised_at, COALESCE(t.promise_count) AS promise_count,
  COALESCE(t.dlq_state) AS dlq_state, 
  REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(TRIM(TRAILING 'F' FROM HEX(t.delivery)), 'A', '-'), 'B', ':'), 'C', 'k'), 'D', '.'), 'E', '/') AS delivery,
 
  COALESCE(t.attempt_traceparent) AS attempt_traceparent, COALESCE(b.created_at) AS created_at,
  COALESCE(t.updated_at) AS updated_at, COALESCE(b.request_id) AS request_id
FROM ingest_task_body b
STRAIGHT_JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, '-', ''))
STRAIGHT_JOIN ingest_worker w ON w.no = t.lease_owner >> 36
WITH CASCADED CHECK OPTION;

SET @step = IF(@done, 'DO 0', 'UPDATE ingest_worker w JOIN (SELECT name, MAX(no) AS no FROM ingest_worker GROUP BY name) l ON l.name = w.name AND l.no <> w.no
SET w.name = CONCAT(LEFT(w.name, 21), ''~'', w.no)');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@done, 'DO 0', 'ALTER TABLE ingest_worker DROP COLUMN lease_until, ADD UNIQUE KEY ingest_worker_name (name)');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
