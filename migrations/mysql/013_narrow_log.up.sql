-- The log in two narrow tables (design D2): a row for each call and kind of change, and a row for each task that it changed.
-- ingest_task_transition becomes a view that reads as the table did. Services of the version before are stopped meanwhile:
-- they write to the table. A run that broke off is repeated: each copy is one statement and passes over what is there.

CREATE TABLE IF NOT EXISTS ingest_task_call (
  no BIGINT NOT NULL AUTO_INCREMENT,
  call_id BINARY(16) NOT NULL, -- the store's name of the call: whoever had no answer to COMMIT looks for it
  from_status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NULL,
  to_status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NOT NULL,
  reason ENUM('ACCEPTED', 'CLAIMED', 'TAKEOVER', 'DONE', 'FAILED', 'EXHAUSTED', 'PERMANENT', 'STALLED', 'THROTTLED', 'HANDED_BACK',
    'RETRY_NOW', 'CANCELLED', 'DELETED', 'SUPERSEDED', 'SUSPENDED', 'RESUMED', 'REPLAYED', 'crash_limit', 'SILENT') NOT NULL,
  timeline BIGINT NOT NULL,
  actor VARCHAR(255) NOT NULL,
  attempt_count SMALLINT NOT NULL DEFAULT 0,
  crash_count SMALLINT NOT NULL DEFAULT 0,
  fence BIGINT NOT NULL DEFAULT 0,
  lease_expires_at DATETIME(6) NULL,
  -- when the first of its tasks wakes, or not later (9999: none does), and until then the row is not counted in ingest_task_count (design D3)
  wake_at DATETIME(6) NOT NULL DEFAULT '9999-12-31 00:00:00',
  tasks INT NOT NULL,
  ids MEDIUMBLOB NOT NULL, -- of its tasks, 16 bytes each
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (no),
  KEY ingest_task_call_wake (to_status, wake_at, no),
  KEY ingest_task_call_made (to_status, created_at, no) -- lists by updated_at
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Append-only, written in the transaction of the change and under the row's lock, so that the order of call_no of one task is
-- the order of its commits. The counts, fence, actor and lease_expires_at are NULL where the call says
-- the same.
CREATE TABLE IF NOT EXISTS ingest_task_log (
  task_id BINARY(16) NOT NULL,
  call_no BIGINT NOT NULL,
  attempt_count SMALLINT NULL,
  crash_count SMALLINT NULL,
  fence BIGINT NULL,
  actor VARCHAR(255) NULL,
  message VARCHAR(2000) NULL,
  lease_expires_at DATETIME(6) NULL,
  next_retry_at DATETIME(6) NULL,
  delivery VARCHAR(31) CHARACTER SET ascii COLLATE ascii_bin NULL,
  error_code VARCHAR(64) NULL,
  PRIMARY KEY (task_id, call_no)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

SET @old = (SELECT COUNT(*) FROM information_schema.tables
             WHERE table_schema = DATABASE() AND table_name = 'ingest_task_transition' AND table_type = 'BASE TABLE');
SET @step = IF(@old, 'INSERT IGNORE INTO ingest_task_call (no, call_id, from_status, to_status, reason, timeline, actor, lease_expires_at, tasks, ids, created_at)
  SELECT id, call_id, from_status, to_status, reason, timeline, actor, lease_expires_at, 1, UNHEX(REPLACE(task_id, ''-'', '''')), created_at
    FROM ingest_task_transition', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@old, 'INSERT IGNORE INTO ingest_task_log (task_id, call_no, attempt_count, crash_count, fence, message, next_retry_at, delivery, error_code)
  SELECT UNHEX(REPLACE(task_id, ''-'', '''')), id, attempt_count, crash_count, fence, NULLIF(message, ''''), next_retry_at, NULLIF(delivery, ''''), error_code
    FROM ingest_task_transition', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@old, 'DROP TABLE ingest_task_transition', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

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
