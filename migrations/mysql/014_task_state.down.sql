-- One table again, of what the two say; a run that broke off is repeated.
SET @done = (SELECT COUNT(*) FROM information_schema.tables
              WHERE table_schema = DATABASE() AND table_name = 'ingest_task' AND table_type = 'BASE TABLE');
SET @step = IF(@done, 'DO 0', 'DROP TABLE IF EXISTS ingest_task_wide');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@done, 'DO 0', 'CREATE TABLE ingest_task_wide LIKE ingest_task_body');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@done, 'DO 0', 'ALTER TABLE ingest_task_wide
  ADD COLUMN status ENUM(''QUEUED'', ''RUNNING'', ''RETRYING'', ''SUCCEEDED'', ''DEAD'', ''SUSPENDED'', ''CANCELLED'') NOT NULL,
  ADD COLUMN stage ENUM(''none'', ''extract'', ''split'', ''embed'', ''index'', ''switch'', ''run'', ''done'') NOT NULL DEFAULT ''none'',
  ADD COLUMN progress SMALLINT NOT NULL DEFAULT 0,
  ADD COLUMN processed_segments INT NOT NULL DEFAULT 0,
  ADD COLUMN total_segments INT NOT NULL DEFAULT 0,
  ADD COLUMN attempt_count INT NOT NULL DEFAULT 0,
  ADD COLUMN crash_count INT NOT NULL DEFAULT 0,
  ADD COLUMN throttle_count INT NOT NULL DEFAULT 0,
  ADD COLUMN next_retry_at DATETIME(6) NULL,
  ADD COLUMN fence BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN lease_owner CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
  ADD COLUMN lease_expires_at DATETIME(6) NOT NULL DEFAULT ''9999-12-31 00:00:00'',
  ADD COLUMN wake_at DATETIME(6) NOT NULL DEFAULT ''9999-12-31 00:00:00'',
  ADD COLUMN promised_at DATETIME(6) NOT NULL DEFAULT ''9999-12-31 00:00:00'',
  ADD COLUMN promise_count INT NOT NULL DEFAULT 0,
  ADD COLUMN dlq_state ENUM(''none'', ''owed'', ''written'') NOT NULL DEFAULT ''none'',
  ADD COLUMN delivery CHAR(31) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
  ADD COLUMN attempt_traceparent CHAR(55) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
  ADD COLUMN updated_at DATETIME(6) NOT NULL,
  ADD COLUMN listed_at DATETIME(6) GENERATED ALWAYS AS (CASE
      WHEN status = ''RUNNING'' OR (status = ''QUEUED'' AND wake_at = updated_at)
        OR (status IN (''SUCCEEDED'', ''DEAD'', ''SUSPENDED'', ''CANCELLED'') AND wake_at = TIMESTAMP ''9999-12-31 00:00:00'') THEN NULL
      ELSE updated_at END) STORED,
  ADD KEY ingest_task_sweep (status, wake_at, updated_at, id),
  ADD KEY ingest_task_listed (listed_at, id),
  ADD CONSTRAINT ingest_task_retry CHECK ((status = ''RETRYING'') = (next_retry_at IS NOT NULL)),
  ADD CONSTRAINT ingest_task_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  ADD CONSTRAINT ingest_task_progress CHECK (progress BETWEEN 0 AND 100)');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@done, 'DO 0', 'INSERT INTO ingest_task_wide (id,
    user_id, document_id, knowledge_base_id, file_path, workflow_id, type, channel, chat_id, payload, result,
    traceparent, request_id, idempotency_key, request_hash, max_attempts, last_error, error_message, error_code,
    created_at, status, stage, progress, processed_segments, total_segments, attempt_count, crash_count,
    throttle_count, next_retry_at, fence, lease_owner, lease_expires_at, wake_at, promised_at, promise_count,
    dlq_state, delivery, attempt_traceparent, updated_at)
  SELECT b.id,
    b.user_id, b.document_id, b.knowledge_base_id, b.file_path, b.workflow_id, b.type, b.channel, b.chat_id,
    b.payload, b.result, b.traceparent, b.request_id, b.idempotency_key, b.request_hash, b.max_attempts,
    b.last_error, b.error_message, b.error_code, b.created_at, t.status, t.stage, t.progress, t.processed_segments,
    t.total_segments, t.attempt_count, t.crash_count, t.throttle_count, t.next_retry_at, t.fence,
    LEFT(COALESCE((SELECT CONCAT(w.name, ''/'', t.lease_owner & 68719476735) FROM ingest_worker w WHERE w.no = t.lease_owner >> 36), ''''), 32),
    CASE WHEN t.status = ''RUNNING'' OR t.status IN (''QUEUED'', ''RETRYING'') AND t.lease_owner <> 0 THEN t.wake_at ELSE TIMESTAMP ''9999-12-31 00:00:00'' END,
    CASE t.status WHEN ''SUCCEEDED'' THEN TIMESTAMP ''9999-12-31 00:00:00'' ELSE t.wake_at END, t.promised_at, t.promise_count, t.dlq_state,
    REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(TRIM(TRAILING ''F'' FROM HEX(t.delivery)), ''A'', ''-''), ''B'', '':''), ''C'', ''k''), ''D'', ''.''), ''E'', ''/''), t.attempt_traceparent,
    t.updated_at
    FROM ingest_task_body b
    JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, ''-'', ''''))
   ORDER BY b.id');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
DROP VIEW IF EXISTS ingest_task_transition;
SET @step = IF(@done, 'DO 0', 'DROP VIEW IF EXISTS ingest_task');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@done, 'DO 0', 'RENAME TABLE ingest_task_wide TO ingest_task');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
DROP TABLE IF EXISTS ingest_task_body;
DROP TABLE IF EXISTS ingest_task_state;
DROP TABLE IF EXISTS ingest_worker;
DROP TABLE IF EXISTS ingest_task_count;
UPDATE ingest_task_call SET wake_at = '9999-12-31 00:00:00' WHERE wake_at < '9999-12-31 00:00:00';

-- The task leads: its row has the id as text, which finds the log. Nobody can write to this view: COALESCE makes a value of each
-- column, and the check refuses another task_id.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW ingest_task_transition AS
SELECT COALESCE(l.call_no) AS id, t.id AS task_id, COALESCE(c.from_status) AS from_status, COALESCE(c.to_status) AS to_status,
  COALESCE(c.reason) AS reason, COALESCE(l.attempt_count, c.attempt_count) AS attempt_count, COALESCE(l.crash_count, c.crash_count) AS crash_count, COALESCE(l.fence, c.fence) AS fence,
  COALESCE(c.timeline) AS timeline, COALESCE(l.actor, c.actor) AS actor, COALESCE(l.message, '') AS message,
  CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END AS lease_expires_at,
  COALESCE(l.next_retry_at) AS next_retry_at, COALESCE(l.delivery, '') AS delivery, COALESCE(l.error_code) AS error_code,
  COALESCE(c.call_id) AS call_id, COALESCE(c.created_at) AS created_at
FROM ingest_task t
STRAIGHT_JOIN ingest_task_log l ON l.task_id = UNHEX(REPLACE(t.id, '-', ''))
STRAIGHT_JOIN ingest_task_call c ON c.no = l.call_no
WITH CASCADED CHECK OPTION;
