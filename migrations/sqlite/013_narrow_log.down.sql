-- The table again, of what the view says. One call changed many tasks: numbers are given anew, in the order of the calls.
CREATE TABLE ingest_task_log_wide (
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
  created_at TEXT NOT NULL,
  error_code TEXT NULL
) STRICT;
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
