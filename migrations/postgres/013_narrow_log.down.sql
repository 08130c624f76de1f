-- The table again, of what the view says. One call changed many tasks: numbers are given anew, in the order of the calls.
CREATE TABLE ingest_task_log_wide (
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
  error_code VARCHAR(64) NULL,
  PRIMARY KEY (id)
);
INSERT INTO ingest_task_log_wide (task_id, from_status, to_status, reason, attempt_count, crash_count, fence,
  timeline, actor, message, lease_expires_at, next_retry_at, delivery, call_id, created_at, error_code)
SELECT task_id, from_status, to_status, reason, attempt_count, crash_count, fence,
  timeline, actor, message, lease_expires_at, next_retry_at, delivery, call_id, created_at, error_code
FROM ingest_task_transition
ORDER BY id, task_id;
DROP VIEW ingest_task_transition;
DROP TABLE ingest_task_log;
DROP TABLE ingest_task_call;
ALTER TABLE ingest_task_log_wide RENAME TO ingest_task_transition;
CREATE INDEX ingest_task_transition_task ON ingest_task_transition (task_id, id);
