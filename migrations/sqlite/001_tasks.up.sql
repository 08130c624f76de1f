-- Tasks and their log (contract §3, design D2, D3).
-- Times are TEXT of fixed width, UTC with microseconds: text order is time order.

-- One row: which history of the database this is. Its random value is made by the first migration
-- and changed only after a restore or an asynchronous failover.
CREATE TABLE IF NOT EXISTS timeline (
  id INTEGER NOT NULL,
  value INTEGER NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT timeline_one_row CHECK (id = 1)
) STRICT;

-- "None" in a NOT NULL column is the year 9999 or an empty text, as in the other dialects.
CREATE TABLE IF NOT EXISTS ingest_task (
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
CREATE UNIQUE INDEX IF NOT EXISTS ingest_task_key ON ingest_task (user_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- the one sweep index (design D3): one status by equality, then exactly this order; by updated_at it also lists
-- what has ended (wake_at: never) and what was just queued (wake_at = updated_at), and listed_at lists the rest
CREATE INDEX IF NOT EXISTS ingest_task_sweep ON ingest_task (status, wake_at, updated_at, id);
CREATE INDEX IF NOT EXISTS ingest_task_listed ON ingest_task (listed_at, id) WHERE listed_at IS NOT NULL;
-- lists of one user, lists of an operator
CREATE INDEX IF NOT EXISTS ingest_task_user_created ON ingest_task (user_id, created_at, id);
CREATE INDEX IF NOT EXISTS ingest_task_created ON ingest_task (created_at, id);
CREATE INDEX IF NOT EXISTS ingest_task_document ON ingest_task (document_id) WHERE document_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS ingest_task_base ON ingest_task (knowledge_base_id, created_at, id) WHERE knowledge_base_id IS NOT NULL;

-- The log: append-only, written in the transaction of the change and after its UPDATE,
-- so that the order of ids of one task is the order of its commits. call_id names the store's call (design D2).
CREATE TABLE IF NOT EXISTS ingest_task_transition (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  task_id TEXT NOT NULL,
  from_status TEXT NULL CHECK (from_status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  to_status TEXT NOT NULL CHECK (to_status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  reason TEXT NOT NULL,
  attempt_count INTEGER NOT NULL,
  crash_count INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  timeline INTEGER NOT NULL,
  actor TEXT NOT NULL,
  message TEXT NOT NULL DEFAULT '',
  lease_expires_at TEXT NULL,
  next_retry_at TEXT NULL,
  delivery TEXT NOT NULL DEFAULT '',
  call_id BLOB NOT NULL,
  created_at TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS ingest_task_transition_task ON ingest_task_transition (task_id, id);
