-- The table again, of what the two say; a run that broke off is repeated.
SET @there = (SELECT COUNT(*) FROM information_schema.tables
               WHERE table_schema = DATABASE() AND table_name = 'ingest_task_transition' AND table_type = 'BASE TABLE');
CREATE TABLE IF NOT EXISTS ingest_task_log_wide (
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
  error_code VARCHAR(64) NULL,
  PRIMARY KEY (id),
  KEY ingest_task_transition_task (task_id, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
SET @step = IF(@there, 'DO 0', 'TRUNCATE ingest_task_log_wide');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
-- One call changed many tasks: numbers are given anew, in the order of the calls.
SET @step = IF(@there, 'DO 0', 'INSERT INTO ingest_task_log_wide (task_id, from_status, to_status, reason, attempt_count, crash_count, fence,
    timeline, actor, message, lease_expires_at, next_retry_at, delivery, call_id, created_at, error_code)
  SELECT LOWER(CONCAT_WS(''-'', HEX(SUBSTR(l.task_id, 1, 4)), HEX(SUBSTR(l.task_id, 5, 2)), HEX(SUBSTR(l.task_id, 7, 2)),
      HEX(SUBSTR(l.task_id, 9, 2)), HEX(SUBSTR(l.task_id, 11)))), c.from_status, c.to_status, c.reason, COALESCE(l.attempt_count, c.attempt_count), COALESCE(l.crash_count, c.crash_count),
  COALESCE(l.fence, c.fence),
    c.timeline, COALESCE(l.actor, c.actor), COALESCE(l.message, ''''),
    CASE c.to_status WHEN ''RUNNING'' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END, l.next_retry_at, COALESCE(l.delivery, ''''),
    c.call_id, c.created_at, l.error_code
    FROM ingest_task_log l
    JOIN ingest_task_call c ON c.no = l.call_no
   ORDER BY l.call_no, l.task_id');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@there, 'DROP TABLE ingest_task_log_wide', 'DROP VIEW IF EXISTS ingest_task_transition');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @step = IF(@there, 'DO 0', 'RENAME TABLE ingest_task_log_wide TO ingest_task_transition');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
DROP TABLE IF EXISTS ingest_task_log;
DROP TABLE IF EXISTS ingest_task_call;
