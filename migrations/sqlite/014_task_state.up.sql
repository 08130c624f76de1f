-- A task in two tables (design D22): ingest_task_body is written once, when the task is accepted, and again only with an error or a
-- result; ingest_task_state, a narrow row of constant width, is what every change of the task writes. ingest_task becomes a view
-- that reads as the table did.

CREATE TABLE ingest_task_body (
  id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  document_id TEXT NULL,
  knowledge_base_id TEXT NULL,
  file_path TEXT NULL,
  workflow_id TEXT NOT NULL DEFAULT '',
  type TEXT NOT NULL,
  channel TEXT NOT NULL,
  chat_id TEXT NOT NULL DEFAULT '',
  payload TEXT NULL,
  result TEXT NULL,
  traceparent TEXT NOT NULL DEFAULT '',
  idempotency_key TEXT NULL,
  request_hash TEXT NOT NULL DEFAULT '',
  max_attempts INTEGER NOT NULL,
  last_error TEXT NULL,
  error_message TEXT NULL,
  error_code TEXT NULL,
  created_at TEXT NOT NULL,
  request_id TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (id)
) STRICT;

-- "None" in a NOT NULL column is the year 9999 or an empty text, as in the other dialects.
CREATE TABLE ingest_task_state (
  id TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  stage TEXT NOT NULL DEFAULT 'none' CHECK (stage IN ('none', 'extract', 'split', 'embed', 'index', 'switch', 'run', 'done')),
  progress INTEGER NOT NULL DEFAULT 0,
  processed_segments INTEGER NOT NULL DEFAULT 0,
  total_segments INTEGER NOT NULL DEFAULT 0,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  crash_count INTEGER NOT NULL DEFAULT 0,
  throttle_count INTEGER NOT NULL DEFAULT 0,
  next_retry_at TEXT NULL,
  fence INTEGER NOT NULL DEFAULT 0,
  lease_owner INTEGER NOT NULL DEFAULT 0, -- the process's number in ingest_worker << 36, and its call's; 0: nobody
  wake_at TEXT NOT NULL DEFAULT '9999-12-31 00:00:00.000000',
  promised_at TEXT NOT NULL DEFAULT '9999-12-31 00:00:00.000000',
  promise_count INTEGER NOT NULL DEFAULT 0,
  dlq_state TEXT NOT NULL DEFAULT 'none' CHECK (dlq_state IN ('none', 'owed', 'written')),
  delivery TEXT NOT NULL DEFAULT '',
  attempt_traceparent TEXT NOT NULL DEFAULT '',
  updated_at TEXT NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT ingest_task_state_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT ingest_task_state_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  CONSTRAINT ingest_task_state_progress CHECK (progress BETWEEN 0 AND 100)
) STRICT, WITHOUT ROWID;

INSERT INTO ingest_task_body (id,
  user_id, document_id, knowledge_base_id, file_path, workflow_id, type, channel, chat_id, payload, result,
  traceparent, request_id, idempotency_key, request_hash, max_attempts, last_error, error_message, error_code,
  created_at)
SELECT id,
  user_id, document_id, knowledge_base_id, file_path, workflow_id, type, channel, chat_id, payload, result,
  traceparent, request_id, idempotency_key, request_hash, max_attempts, last_error, error_message, error_code,
  created_at
FROM ingest_task ORDER BY id;

-- Processes that have claimed tasks. No number is used twice.
CREATE TABLE ingest_worker (
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL
) STRICT;
INSERT INTO ingest_worker (name, created_at)
SELECT DISTINCT substr(lease_owner, 1, instr(lease_owner, '/') - 1), strftime('%Y-%m-%d %H:%M:%f000', 'now') FROM ingest_task WHERE lease_owner <> '';

INSERT INTO ingest_task_state (id,
  status, stage, progress, processed_segments, total_segments, attempt_count, crash_count, throttle_count,
  next_retry_at, fence, lease_owner, wake_at, promised_at, promise_count, dlq_state, delivery,
  attempt_traceparent, updated_at)
SELECT id,
  status, stage, progress, processed_segments, total_segments, attempt_count, crash_count, throttle_count,
  next_retry_at, fence,
  COALESCE((SELECT CAST(w.no AS BIGINT) << 36 FROM ingest_worker w WHERE w.name = substr(lease_owner, 1, instr(lease_owner, '/') - 1)), 0),
  wake_at, promised_at, promise_count, dlq_state, delivery,
  attempt_traceparent, updated_at
FROM ingest_task ORDER BY id;

DROP TABLE ingest_task;

-- lists of one user, lists of an operator
CREATE UNIQUE INDEX ingest_task_key ON ingest_task_body (user_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ingest_task_user_created ON ingest_task_body (user_id, created_at, id);
CREATE INDEX ingest_task_created ON ingest_task_body (created_at, id);
CREATE INDEX ingest_task_document ON ingest_task_body (document_id) WHERE document_id IS NOT NULL;
CREATE INDEX ingest_task_base ON ingest_task_body (knowledge_base_id, created_at, id) WHERE knowledge_base_id IS NOT NULL;

-- Who wakes is named by the last call of each task, and how many tasks there are by the counts and the calls that wake.
UPDATE ingest_task_call
SET wake_at = w.wake_at
FROM (
  SELECT m.no, MIN(m.wake_at) AS wake_at
  FROM (
    SELECT MAX(l.call_no) AS no, t.wake_at
    FROM ingest_task_state t
    JOIN ingest_task_log l ON l.task_id = t.id
    WHERE t.wake_at < '9999-12-31 00:00:00.000000'
    GROUP BY t.id, t.wake_at) m
  GROUP BY m.no) w
WHERE w.no = ingest_task_call.no;

-- Tasks by status, without those of calls that wake: whoever ends a call's waking adds what it changed.
CREATE TABLE ingest_task_count (
  status TEXT NOT NULL PRIMARY KEY,
  n INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO ingest_task_count (status, n)
SELECT status, SUM(n)
FROM (
  SELECT 'QUEUED' AS status, 0 AS n
  UNION ALL SELECT 'RUNNING', 0 UNION ALL SELECT 'RETRYING', 0 UNION ALL SELECT 'SUCCEEDED', 0
  UNION ALL SELECT 'DEAD', 0 UNION ALL SELECT 'SUSPENDED', 0 UNION ALL SELECT 'CANCELLED', 0
  UNION ALL SELECT status, COUNT(*) FROM ingest_task_state GROUP BY status
  UNION ALL SELECT to_status, -SUM(tasks) FROM ingest_task_call WHERE wake_at < '9999-12-31 00:00:00.000000' GROUP BY to_status
  UNION ALL SELECT from_status, SUM(tasks) FROM ingest_task_call WHERE wake_at < '9999-12-31 00:00:00.000000' AND from_status IS NOT NULL GROUP BY from_status) c
GROUP BY status;

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
