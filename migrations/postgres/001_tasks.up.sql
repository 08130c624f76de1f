-- Tasks and their log (contract §3, design D2, D3).
-- Ids and what leads an index are compared byte by byte (COLLATE "C"): the same order in every dialect, and cheaper.

-- One row: which history of the database this is. Its random value is made by the first migration
-- and changed only after a restore or an asynchronous failover.
CREATE TABLE IF NOT EXISTS timeline (
  id SMALLINT NOT NULL,
  value BIGINT NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT timeline_one_row CHECK (id = 1)
);

-- The fill factor leaves room in each page for the next version of a row.
-- "None" in a NOT NULL column is the year 9999 or an empty text, as in the other dialects.
CREATE TABLE IF NOT EXISTS ingest_task (
  id VARCHAR(36) COLLATE "C" NOT NULL,
  user_id VARCHAR(190) COLLATE "C" NOT NULL,
  document_id VARCHAR(36) COLLATE "C" NULL,
  knowledge_base_id VARCHAR(36) COLLATE "C" NULL,
  file_path VARCHAR(1024) NULL,
  workflow_id VARCHAR(190) NOT NULL DEFAULT '',
  type VARCHAR(64) NOT NULL,
  channel VARCHAR(32) NOT NULL,
  chat_id VARCHAR(190) NOT NULL DEFAULT '',
  payload TEXT NULL,
  result TEXT NULL,
  traceparent VARCHAR(64) NOT NULL DEFAULT '',
  idempotency_key VARCHAR(512) NULL,
  request_hash VARCHAR(64) NOT NULL DEFAULT '',
  status VARCHAR(16) COLLATE "C" NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  stage VARCHAR(16) NOT NULL DEFAULT 'none' CHECK (stage IN ('none', 'extract', 'split', 'embed', 'index', 'switch', 'run', 'done')),
  progress SMALLINT NOT NULL DEFAULT 0,
  processed_segments INTEGER NOT NULL DEFAULT 0,
  total_segments INTEGER NOT NULL DEFAULT 0,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL,
  crash_count INTEGER NOT NULL DEFAULT 0,
  throttle_count INTEGER NOT NULL DEFAULT 0,
  next_retry_at TIMESTAMPTZ NULL,
  last_error VARCHAR(2000) NULL,
  error_message VARCHAR(2000) NULL,
  error_code VARCHAR(64) NULL,
  fence BIGINT NOT NULL DEFAULT 0,
  lease_owner VARCHAR(32) NOT NULL DEFAULT '',
  lease_expires_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  wake_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  promised_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  promise_count INTEGER NOT NULL DEFAULT 0,
  dlq_state VARCHAR(16) NOT NULL DEFAULT 'none' CHECK (dlq_state IN ('none', 'owed', 'written')),
  delivery VARCHAR(31) NOT NULL DEFAULT '',
  attempt_traceparent VARCHAR(55) NOT NULL DEFAULT '',
  created_at TIMESTAMPTZ NOT NULL,
  updated_at TIMESTAMPTZ NOT NULL,
  -- updated_at of a row whose place in the sweep index does not tell it; NULL all along the happy path
  listed_at TIMESTAMPTZ GENERATED ALWAYS AS (CASE
    WHEN status = 'RUNNING' OR (status = 'QUEUED' AND wake_at = updated_at)
      OR (status IN ('SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') AND wake_at = '9999-12-31 00:00:00+00') THEN NULL
    ELSE updated_at END) STORED,
  PRIMARY KEY (id),
  CONSTRAINT ingest_task_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT ingest_task_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  CONSTRAINT ingest_task_progress CHECK (progress BETWEEN 0 AND 100)
) WITH (fillfactor = 85);
-- indexes of what many tasks have not leave those out: each change of a row writes an entry into every index that has the row
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
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  task_id VARCHAR(36) COLLATE "C" NOT NULL,
  from_status VARCHAR(16) NULL CHECK (from_status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  to_status VARCHAR(16) NOT NULL CHECK (to_status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  reason VARCHAR(32) NOT NULL,
  attempt_count INTEGER NOT NULL,
  crash_count INTEGER NOT NULL,
  fence BIGINT NOT NULL,
  timeline BIGINT NOT NULL,
  actor VARCHAR(255) NOT NULL,
  message VARCHAR(2000) NOT NULL DEFAULT '',
  lease_expires_at TIMESTAMPTZ NULL,
  next_retry_at TIMESTAMPTZ NULL,
  delivery VARCHAR(31) NOT NULL DEFAULT '',
  call_id BYTEA NOT NULL,
  created_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS ingest_task_transition_task ON ingest_task_transition (task_id, id);
