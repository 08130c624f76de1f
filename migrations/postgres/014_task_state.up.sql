-- A task in two tables (design D22): ingest_task_body is written once, when the task is accepted, and again only with an error or a
-- result; ingest_task_state, a narrow row of constant width, is what every change of the task writes. ingest_task becomes a view
-- that reads as the table did. Services of the version before are stopped meanwhile: they write to the table.

DROP VIEW ingest_task_transition;

-- The fill factor leaves room in each page for the next version of a row.
-- "None" in a NOT NULL column is the year 9999 or an empty text, as in the other dialects.
CREATE TABLE ingest_task_state (
  id UUID NOT NULL,
  status VARCHAR(16) COLLATE "C" NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  stage VARCHAR(16) NOT NULL DEFAULT 'none' CHECK (stage IN ('none', 'extract', 'split', 'embed', 'index', 'switch', 'run', 'done')),
  progress SMALLINT NOT NULL DEFAULT 0,
  processed_segments INTEGER NOT NULL DEFAULT 0,
  total_segments INTEGER NOT NULL DEFAULT 0,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  crash_count INTEGER NOT NULL DEFAULT 0,
  throttle_count INTEGER NOT NULL DEFAULT 0,
  next_retry_at TIMESTAMPTZ NULL,
  fence BIGINT NOT NULL DEFAULT 0,
  lease_owner BIGINT NOT NULL DEFAULT 0, -- the process's number in ingest_worker << 36, and its call's; 0: nobody
  wake_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  promised_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  promise_count INTEGER NOT NULL DEFAULT 0,
  dlq_state VARCHAR(16) NOT NULL DEFAULT 'none' CHECK (dlq_state IN ('none', 'owed', 'written')),
  delivery VARCHAR(31) NOT NULL DEFAULT '',
  attempt_traceparent VARCHAR(55) NOT NULL DEFAULT '',
  updated_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT ingest_task_state_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT ingest_task_state_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  CONSTRAINT ingest_task_state_progress CHECK (progress BETWEEN 0 AND 100)
) WITH (fillfactor = 50);
-- Without a picture of what changes all the time, the planner finds rows by their key (measured: else it reads the whole table).
ALTER TABLE ingest_task_state ALTER COLUMN status SET STATISTICS 0, ALTER COLUMN fence SET STATISTICS 0, ALTER COLUMN lease_owner SET STATISTICS 0;

-- Processes that have claimed tasks. No number is used twice.
CREATE TABLE ingest_worker (
  no INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name VARCHAR(32) NOT NULL UNIQUE,
  created_at TIMESTAMPTZ NOT NULL
);
INSERT INTO ingest_worker (name, created_at)
SELECT DISTINCT split_part(lease_owner, '/', 1), statement_timestamp() FROM ingest_task WHERE lease_owner <> '';

INSERT INTO ingest_task_state (id,
  status, stage, progress, processed_segments, total_segments, attempt_count, crash_count, throttle_count,
  next_retry_at, fence, lease_owner, wake_at, promised_at, promise_count, dlq_state, delivery,
  attempt_traceparent, updated_at)
SELECT CAST(id AS uuid),
  status, stage, progress, processed_segments, total_segments, attempt_count, crash_count, throttle_count,
  next_retry_at, fence,
  COALESCE((SELECT CAST(w.no AS BIGINT) << 36 FROM ingest_worker w WHERE w.name = split_part(lease_owner, '/', 1)), 0),
  wake_at, promised_at, promise_count, dlq_state, delivery,
  attempt_traceparent, updated_at
FROM ingest_task;

-- With the columns go the indexes and checks that name them.
ALTER TABLE ingest_task DROP COLUMN listed_at,
  DROP COLUMN status, DROP COLUMN stage, DROP COLUMN progress, DROP COLUMN processed_segments,
  DROP COLUMN total_segments, DROP COLUMN attempt_count, DROP COLUMN crash_count, DROP COLUMN throttle_count,
  DROP COLUMN next_retry_at, DROP COLUMN fence, DROP COLUMN lease_owner, DROP COLUMN lease_expires_at,
  DROP COLUMN wake_at, DROP COLUMN promised_at, DROP COLUMN promise_count, DROP COLUMN dlq_state,
  DROP COLUMN delivery, DROP COLUMN attempt_traceparent, DROP COLUMN updated_at;
ALTER TABLE ingest_task RESET (fillfactor);
ALTER TABLE ingest_task RENAME TO ingest_task_body;

-- Who wakes is named by the last call of each task, and how many tasks there are by the counts and the calls that wake.
UPDATE ingest_task_call c
SET wake_at = w.wake_at
FROM (
  SELECT m.no, MIN(m.wake_at) AS wake_at
  FROM (
    SELECT MAX(l.call_no) AS no, t.wake_at
    FROM ingest_task_state t
    JOIN ingest_task_log l ON l.task_id = t.id
    WHERE t.wake_at < '9999-12-31 00:00:00+00'
    GROUP BY t.id, t.wake_at) m
  GROUP BY m.no) w
WHERE w.no = c.no;

-- Tasks by status, without those of calls that wake: whoever ends a call's waking adds what it changed.
CREATE TABLE ingest_task_count (
  status VARCHAR(16) COLLATE "C" NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (status)
) WITH (fillfactor = 50);

INSERT INTO ingest_task_count (status, n)
SELECT status, SUM(n)
FROM (
  SELECT 'QUEUED' AS status, 0 AS n
  UNION ALL SELECT 'RUNNING', 0 UNION ALL SELECT 'RETRYING', 0 UNION ALL SELECT 'SUCCEEDED', 0
  UNION ALL SELECT 'DEAD', 0 UNION ALL SELECT 'SUSPENDED', 0 UNION ALL SELECT 'CANCELLED', 0
  UNION ALL SELECT status, COUNT(*) FROM ingest_task_state GROUP BY status
  UNION ALL SELECT to_status, -SUM(tasks) FROM ingest_task_call WHERE wake_at < '9999-12-31 00:00:00+00' GROUP BY to_status
  UNION ALL SELECT from_status, SUM(tasks) FROM ingest_task_call WHERE wake_at < '9999-12-31 00:00:00+00' AND from_status IS NOT NULL GROUP BY from_status) c
GROUP BY status;

CREATE VIEW ingest_task AS
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

-- The task leads: its row has the id as text, which finds the log.
CREATE VIEW ingest_task_transition AS
SELECT l.call_no AS id, t.id AS task_id, c.from_status, c.to_status, c.reason, COALESCE(l.attempt_count, c.attempt_count) AS attempt_count, COALESCE(l.crash_count, c.crash_count) AS crash_count,
  COALESCE(l.fence, c.fence) AS fence, c.timeline,
  COALESCE(l.actor, c.actor) AS actor, COALESCE(l.message, '') AS message,
  CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END AS lease_expires_at,
  l.next_retry_at, COALESCE(l.delivery, '') AS delivery, l.error_code, c.call_id, c.created_at
FROM ingest_task_body t
JOIN ingest_task_log l ON l.task_id = CAST(t.id AS uuid)
JOIN ingest_task_call c ON c.no = l.call_no;
