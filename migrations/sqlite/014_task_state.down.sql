-- One table again, of what the two say.
DROP VIEW ingest_task;

CREATE TABLE ingest_task (
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
  status TEXT NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  stage TEXT NOT NULL DEFAULT 'none' CHECK (stage IN ('none', 'extract', 'split', 'embed', 'index', 'switch', 'run', 'done')),
  progress INTEGER NOT NULL DEFAULT 0,
  processed_segments INTEGER NOT NULL DEFAULT 0,
  total_segments INTEGER NOT NULL DEFAULT 0,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL,
  crash_count INTEGER NOT NULL DEFAULT 0,
  throttle_count INTEGER NOT NULL DEFAULT 0,
  next_retry_at TEXT NULL,
  last_error TEXT NULL,
  error_message TEXT NULL,
  error_code TEXT NULL,
  fence INTEGER NOT NULL DEFAULT 0,
  lease_owner TEXT NOT NULL DEFAULT '',
  lease_expires_at TEXT NOT NULL DEFAULT '9999-12-31 00:00:00.000000',
  wake_at TEXT NOT NULL DEFAULT '9999-12-31 00:00:00.000000',
  promised_at TEXT NOT NULL DEFAULT '9999-12-31 00:00:00.000000',
  promise_count INTEGER NOT NULL DEFAULT 0,
  dlq_state TEXT NOT NULL DEFAULT 'none' CHECK (dlq_state IN ('none', 'owed', 'written')),
  delivery TEXT NOT NULL DEFAULT '',
  attempt_traceparent TEXT NOT NULL DEFAULT '',
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  request_id TEXT NOT NULL DEFAULT '',
  -- updated_at of a row whose place in the sweep index does not tell it; NULL all along the happy path
  listed_at TEXT GENERATED ALWAYS AS (CASE
    WHEN status = 'RUNNING' OR (status = 'QUEUED' AND wake_at = updated_at)
      OR (status IN ('SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') AND wake_at = '9999-12-31 00:00:00.000000') THEN NULL
    ELSE updated_at END) STORED,
  PRIMARY KEY (id),
  CONSTRAINT ingest_task_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT ingest_task_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  CONSTRAINT ingest_task_progress CHECK (progress BETWEEN 0 AND 100)
) STRICT;

INSERT INTO ingest_task (id,
  user_id, document_id, knowledge_base_id, file_path, workflow_id, type, channel, chat_id, payload, result,
  traceparent, request_id, idempotency_key, request_hash, max_attempts, last_error, error_message, error_code,
  created_at, status, stage, progress, processed_segments, total_segments, attempt_count, crash_count,
  throttle_count, next_retry_at, fence, lease_owner, lease_expires_at, wake_at, promised_at, promise_count,
  dlq_state, delivery, attempt_traceparent, updated_at)
SELECT b.id,
  b.user_id, b.document_id, b.knowledge_base_id, b.file_path, b.workflow_id, b.type, b.channel, b.chat_id, b.payload,
  b.result, b.traceparent, b.request_id, b.idempotency_key, b.request_hash, b.max_attempts, b.last_error,
  b.error_message, b.error_code, b.created_at, t.status, t.stage, t.progress, t.processed_segments, t.total_segments,
  t.attempt_count, t.crash_count, t.throttle_count, t.next_retry_at, t.fence,
  substr(COALESCE((SELECT w.name || '/' || (t.lease_owner & 68719476735) FROM ingest_worker w WHERE w.no = t.lease_owner >> 36), ''), 1, 32),
  CASE WHEN t.status = 'RUNNING' OR t.status IN ('QUEUED', 'RETRYING') AND t.lease_owner <> 0 THEN t.wake_at ELSE '9999-12-31 00:00:00.000000' END,
  CASE t.status WHEN 'SUCCEEDED' THEN '9999-12-31 00:00:00.000000' ELSE t.wake_at END,
  t.promised_at, t.promise_count, t.dlq_state, t.delivery, t.attempt_traceparent, t.updated_at
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = b.id
ORDER BY b.id;

DROP TABLE ingest_task_body;
DROP TABLE ingest_task_state;
DROP TABLE ingest_worker;
DROP TABLE ingest_task_count;
UPDATE ingest_task_call SET wake_at = '9999-12-31 00:00:00.000000' WHERE wake_at < '9999-12-31 00:00:00.000000';

CREATE UNIQUE INDEX ingest_task_key ON ingest_task (user_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ingest_task_sweep ON ingest_task (status, wake_at, updated_at, id);
CREATE INDEX ingest_task_listed ON ingest_task (listed_at, id) WHERE listed_at IS NOT NULL;
CREATE INDEX ingest_task_user_created ON ingest_task (user_id, created_at, id);
CREATE INDEX ingest_task_created ON ingest_task (created_at, id);
CREATE INDEX ingest_task_document ON ingest_task (document_id) WHERE document_id IS NOT NULL;
CREATE INDEX ingest_task_base ON ingest_task (knowledge_base_id, created_at, id) WHERE knowledge_base_id IS NOT NULL;
