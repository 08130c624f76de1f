-- Tasks and their log (contract §3, design D2, D3).
-- All statements can run again: DDL commits by itself on this family of servers, so a run that broke off is repeated.

-- One row: which history of the database this is. Its random value is made by the first migration
-- and changed only after a restore or an asynchronous failover.
CREATE TABLE IF NOT EXISTS timeline (
  id TINYINT NOT NULL,
  value BIGINT NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT timeline_one_row CHECK (id = 1)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Columns that change on the happy path are NOT NULL and of constant width, "none" being the year 9999 or an
-- empty text: a row that never grows never splits its page (measured: a third of the redo).
CREATE TABLE IF NOT EXISTS ingest_task (
  id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id VARCHAR(190) NOT NULL,
  document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL,
  knowledge_base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL,
  file_path VARCHAR(1024) NULL,
  workflow_id VARCHAR(190) NOT NULL DEFAULT '',
  type VARCHAR(64) NOT NULL,
  channel VARCHAR(32) NOT NULL,
  chat_id VARCHAR(190) NOT NULL DEFAULT '',
  payload MEDIUMTEXT NULL,
  result MEDIUMTEXT NULL,
  traceparent VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  idempotency_key VARCHAR(512) NULL,
  request_hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NOT NULL,
  stage ENUM('none', 'extract', 'split', 'embed', 'index', 'switch', 'run', 'done') NOT NULL DEFAULT 'none',
  progress SMALLINT NOT NULL DEFAULT 0,
  processed_segments INT NOT NULL DEFAULT 0,
  total_segments INT NOT NULL DEFAULT 0,
  attempt_count INT NOT NULL DEFAULT 0,
  max_attempts INT NOT NULL,
  crash_count INT NOT NULL DEFAULT 0,
  throttle_count INT NOT NULL DEFAULT 0,
  next_retry_at DATETIME(6) NULL,
  last_error VARCHAR(2000) NULL,
  error_message VARCHAR(2000) NULL,
  error_code VARCHAR(64) NULL,
  fence BIGINT NOT NULL DEFAULT 0,
  lease_owner CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  lease_expires_at DATETIME(6) NOT NULL DEFAULT '9999-12-31 00:00:00',
  wake_at DATETIME(6) NOT NULL DEFAULT '9999-12-31 00:00:00',
  promised_at DATETIME(6) NOT NULL DEFAULT '9999-12-31 00:00:00',
  promise_count INT NOT NULL DEFAULT 0,
  dlq_state ENUM('none', 'owed', 'written') NOT NULL DEFAULT 'none',
  delivery CHAR(31) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  attempt_traceparent CHAR(55) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  -- updated_at of a row whose place in the sweep index does not tell it; NULL all along the happy path
  listed_at DATETIME(6) GENERATED ALWAYS AS (CASE
    WHEN status = 'RUNNING' OR (status = 'QUEUED' AND wake_at = updated_at)
      OR (status IN ('SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') AND wake_at = TIMESTAMP '9999-12-31 00:00:00') THEN NULL
    ELSE updated_at END) STORED,
  PRIMARY KEY (id),
  UNIQUE KEY ingest_task_key (user_id, idempotency_key),
  -- the one sweep index (design D3): one status by equality, then exactly this order; by updated_at it also lists
  -- what has ended (wake_at: never) and what was just queued (wake_at = updated_at), and listed_at lists the rest
  KEY ingest_task_sweep (status, wake_at, updated_at, id),
  KEY ingest_task_listed (listed_at, id),
  -- lists of one user, lists of an operator
  KEY ingest_task_user_created (user_id, created_at, id),
  KEY ingest_task_created (created_at, id),
  KEY ingest_task_document (document_id),
  KEY ingest_task_base (knowledge_base_id, created_at, id),
  CONSTRAINT ingest_task_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT ingest_task_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  CONSTRAINT ingest_task_progress CHECK (progress BETWEEN 0 AND 100)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The log: append-only, written in the transaction of the change and after its UPDATE,
-- so that the order of ids of one task is the order of its commits. call_id names the store's call (design D2).
CREATE TABLE IF NOT EXISTS ingest_task_transition (
  id BIGINT NOT NULL AUTO_INCREMENT,
  task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  from_status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NULL,
  to_status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NOT NULL,
  reason ENUM('ACCEPTED', 'CLAIMED', 'TAKEOVER', 'DONE', 'FAILED', 'EXHAUSTED', 'PERMANENT', 'STALLED', 'THROTTLED', 'HANDED_BACK',
    'RETRY_NOW', 'CANCELLED', 'DELETED', 'SUPERSEDED', 'SUSPENDED', 'RESUMED', 'REPLAYED', 'crash_limit') NOT NULL,
  attempt_count SMALLINT NOT NULL,
  crash_count SMALLINT NOT NULL,
  fence BIGINT NOT NULL,
  timeline BIGINT NOT NULL,
  actor VARCHAR(255) NOT NULL,
  message VARCHAR(2000) NOT NULL DEFAULT '',
  lease_expires_at DATETIME(6) NULL,
  next_retry_at DATETIME(6) NULL,
  delivery VARCHAR(31) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  call_id BINARY(16) NOT NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id),
  KEY ingest_task_transition_task (task_id, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
