-- A task in two tables (design D22): ingest_task_body is written once, when the task is accepted, and again only with an error or a
-- result; ingest_task_state, a narrow row of constant width, is what every change of the task writes. ingest_task becomes a view
-- that reads as the table did. Services of the version before are stopped meanwhile: they write to the table.
-- A run that broke off is repeated: it copies anew as long as the old table is there.

-- Columns that change on the happy path are NOT NULL and of constant width, "none" being the year 9999 or an
-- empty text: a row that never grows never splits its page (measured: a third of the redo).
CREATE TABLE IF NOT EXISTS ingest_task_state (
  id BINARY(16) NOT NULL, -- of the task, as bytes
  status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NOT NULL,
  stage ENUM('none', 'extract', 'split', 'embed', 'index', 'switch', 'run', 'done') NOT NULL DEFAULT 'none',
  progress SMALLINT NOT NULL DEFAULT 0,
  processed_segments INT NOT NULL DEFAULT 0,
  total_segments INT NOT NULL DEFAULT 0,
  attempt_count INT NOT NULL DEFAULT 0,
  crash_count INT NOT NULL DEFAULT 0,
  throttle_count INT NOT NULL DEFAULT 0,
  next_retry_at DATETIME(6) NULL,
  fence BIGINT NOT NULL DEFAULT 0,
  lease_owner BIGINT NOT NULL DEFAULT 0, -- the process's number in ingest_worker << 36, and its call's; 0: nobody
  wake_at DATETIME(6) NOT NULL DEFAULT '9999-12-31 00:00:00',
  promised_at DATETIME(6) NOT NULL DEFAULT '9999-12-31 00:00:00',
  promise_count INT NOT NULL DEFAULT 0,
  dlq_state ENUM('none', 'owed', 'written') NOT NULL DEFAULT 'none',
  delivery BINARY(16) NOT NULL DEFAULT X'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF', -- two characters a byte: 0 to 9, - as A, : as B, k as C, . as D, / as E, and F behind them
  attempt_traceparent CHAR(55) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT ingest_task_state_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT ingest_task_state_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  CONSTRAINT ingest_task_state_progress CHECK (progress BETWEEN 0 AND 100)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Processes that have claimed tasks. No number is used twice. Number 0 is nobody: with a row for it the view needs no outer join,
-- which MySQL would write through, and no subquery, of which it would make a table.
CREATE TABLE IF NOT EXISTS ingest_worker (
  no INT NOT NULL AUTO_INCREMENT,
  name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (no),
  UNIQUE KEY ingest_worker_name (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO ingest_worker (name, created_at) VALUES ('', NOW(6));
UPDATE ingest_worker SET no = 0 WHERE name = '';

SET @old = (SELECT COUNT(*) FROM information_schema.tables
             WHERE table_schema = DATABASE() AND table_name = 'ingest_task' AND table_type = 'BASE TABLE');
SET @step = IF(@old, 'TRUNCATE ingest_task_state', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@old, 'INSERT INTO ingest_worker (name, created_at)
  SELECT DISTINCT SUBSTRING_INDEX(lease_owner, ''/'', 1), NOW(6) FROM ingest_task
   WHERE lease_owner <> '''' AND SUBSTRING_INDEX(lease_owner, ''/'', 1) NOT IN (SELECT name FROM ingest_worker)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@old, 'INSERT INTO ingest_task_state (id,
    status, stage, progress, processed_segments, total_segments, attempt_count, crash_count, throttle_count,
    next_retry_at, fence, lease_owner, wake_at, promised_at, promise_count, dlq_state, delivery,
    attempt_traceparent, updated_at)
  SELECT UNHEX(REPLACE(id, ''-'', '''')),
    status, stage, progress, processed_segments, total_segments, attempt_count, crash_count, throttle_count,
    next_retry_at, fence,
    COALESCE((SELECT w.no << 36 FROM ingest_worker w WHERE w.name = SUBSTRING_INDEX(lease_owner, ''/'', 1)), 0),
    wake_at, promised_at, promise_count, dlq_state,
    COALESCE(UNHEX(RPAD(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(delivery, ''-'', ''A''), '':'', ''B''), ''k'', ''C''), ''.'', ''D''), ''/'', ''E''), 32, ''F'')), UNHEX(REPEAT(''F'', 32))),
    attempt_traceparent, updated_at
    FROM ingest_task', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@old, 'ALTER TABLE ingest_task
  DROP CONSTRAINT ingest_task_retry, DROP CONSTRAINT ingest_task_counts, DROP CONSTRAINT ingest_task_progress,
  DROP KEY ingest_task_sweep, DROP KEY ingest_task_listed, DROP COLUMN listed_at,
  DROP COLUMN status, DROP COLUMN stage, DROP COLUMN progress, DROP COLUMN processed_segments,
  DROP COLUMN total_segments, DROP COLUMN attempt_count, DROP COLUMN crash_count, DROP COLUMN throttle_count,
  DROP COLUMN next_retry_at, DROP COLUMN fence, DROP COLUMN lease_owner, DROP COLUMN lease_expires_at,
  DROP COLUMN wake_at, DROP COLUMN promised_at, DROP COLUMN promise_count, DROP COLUMN dlq_state,
  DROP COLUMN delivery, DROP COLUMN attempt_traceparent, DROP COLUMN updated_at,
  RENAME TO ingest_task_body', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

-- Who wakes is named by the last call of each task, and how many tasks there are by the counts and the calls that wake.
UPDATE ingest_task_call c
JOIN (
  SELECT m.no, MIN(m.wake_at) AS wake_at
  FROM (
    SELECT MAX(l.call_no) AS no, t.wake_at
    FROM ingest_task_state t
    JOIN ingest_task_log l ON l.task_id = t.id
    WHERE t.wake_at < TIMESTAMP '9999-12-31 00:00:00'
    GROUP BY t.id, t.wake_at) m
  GROUP BY m.no) w ON w.no = c.no
SET c.wake_at = w.wake_at;

-- Tasks by status, without those of calls that wake: whoever ends a call's waking adds what it changed.
CREATE TABLE IF NOT EXISTS ingest_task_count (
  status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (status)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
TRUNCATE ingest_task_count;
INSERT INTO ingest_task_count (status, n)
SELECT status, SUM(n)
FROM (
  SELECT 'QUEUED' AS status, 0 AS n
  UNION ALL SELECT 'RUNNING', 0 UNION ALL SELECT 'RETRYING', 0 UNION ALL SELECT 'SUCCEEDED', 0
  UNION ALL SELECT 'DEAD', 0 UNION ALL SELECT 'SUSPENDED', 0 UNION ALL SELECT 'CANCELLED', 0
  UNION ALL SELECT status, COUNT(*) FROM ingest_task_state GROUP BY status
  UNION ALL SELECT to_status, -SUM(tasks) FROM ingest_task_call WHERE wake_at < TIMESTAMP '9999-12-31 00:00:00' GROUP BY to_status
  UNION ALL SELECT from_status, SUM(tasks) FROM ingest_task_call WHERE wake_at < TIMESTAMP '9999-12-31 00:00:00' AND from_status IS NOT NULL GROUP BY from_status) c
GROUP BY status;

-- Nobody can write to these views: COALESCE makes a value of each column, and the check refuses another id.
-- The order of the joins is given: from a state no index leads to its body, and without figures about the tables the server
-- may begin there. Only the id has an index through the view; the tasks of a user, base or document are found in ingest_task_body.
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

-- The task leads: its row has the id as text, which finds the log.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW ingest_task_transition AS
SELECT COALESCE(l.call_no) AS id, t.id AS task_id, COALESCE(c.from_status) AS from_status, COALESCE(c.to_status) AS to_status,
  COALESCE(c.reason) AS reason, COALESCE(l.attempt_count, c.attempt_count) AS attempt_count, COALESCE(l.crash_count, c.crash_count) AS crash_count, COALESCE(l.fence, c.fence) AS fence,
  COALESCE(c.timeline) AS timeline, COALESCE(l.actor, c.actor) AS actor, COALESCE(l.message, '') AS message,
  CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END AS lease_expires_at,
  COALESCE(l.next_retry_at) AS next_retry_at, COALESCE(l.delivery, '') AS delivery, COALESCE(l.error_code) AS error_code,
  COALESCE(c.call_id) AS call_id, COALESCE(c.created_at) AS created_at
FROM ingest_task_body t
STRAIGHT_JOIN ingest_task_log l ON l.task_id = UNHEX(REPLACE(t.id, '-', ''))
STRAIGHT_JOIN ingest_task_call c ON c.no = l.call_no
WITH CASCADED CHECK OPTION;
