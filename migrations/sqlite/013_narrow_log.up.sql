-- The log in two narrow tables (design D2): a row for each call and kind of change, and a row for each task that it changed.
-- ingest_task_transition becomes a view that reads as the table did.

CREATE TABLE ingest_task_call (
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  call_id BLOB NOT NULL, -- the store's name of the call: whoever had no answer to COMMIT looks for it
  from_status TEXT NULL CHECK (from_status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  to_status TEXT NOT NULL CHECK (to_status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  reason TEXT NOT NULL,
  timeline INTEGER NOT NULL,
  actor TEXT NOT NULL,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  crash_count INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  lease_expires_at TEXT NULL,
  -- when the first of its tasks wakes, or not later (9999: none does), and until then the row is not counted in ingest_task_count (design D3)
  wake_at TEXT NOT NULL DEFAULT '9999-12-31 00:00:00.000000',
  tasks INTEGER NOT NULL,
  ids BLOB NOT NULL, -- of its tasks, 16 bytes each
  created_at TEXT NOT NULL
) STRICT;
CREATE INDEX ingest_task_call_wake ON ingest_task_call (to_status, wake_at, no) WHERE wake_at < '9999-12-31 00:00:00.000000';
CREATE INDEX ingest_task_call_made ON ingest_task_call (to_status, created_at, no); -- lists by updated_at

-- Append-only, written in the transaction of the change, so that the order of call_no of one task is the order of its commits.
-- The counts, fence, actor and lease_expires_at are NULL
-- where the call says the same.
CREATE TABLE ingest_task_log (
  task_id TEXT NOT NULL,
  call_no INTEGER NOT NULL,
  attempt_count INTEGER NULL,
  crash_count INTEGER NULL,
  fence INTEGER NULL,
  actor TEXT NULL,
  message TEXT NULL,
  lease_expires_at TEXT NULL,
  next_retry_at TEXT NULL,
  delivery TEXT NULL,
  error_code TEXT NULL,
  PRIMARY KEY (task_id, call_no)
) STRICT, WITHOUT ROWID;

INSERT INTO ingest_task_call (no, call_id, from_status, to_status, reason, timeline, actor, lease_expires_at, tasks, ids, created_at)
SELECT id, call_id, from_status, to_status, reason, timeline, actor, lease_expires_at, 1, UNHEX(task_id, '-'), created_at
FROM ingest_task_transition;

INSERT INTO ingest_task_log (task_id, call_no, attempt_count, crash_count, fence, message, next_retry_at, delivery, error_code)
SELECT task_id, id, attempt_count, crash_count, fence, NULLIF(message, ''), next_retry_at, NULLIF(delivery, ''), error_code
FROM ingest_task_transition;

DROP TABLE ingest_task_transition;

CREATE VIEW ingest_task_transition AS
SELECT l.call_no AS id, l.task_id, c.from_status, c.to_status, c.reason, COALESCE(l.attempt_count, c.attempt_count) AS attempt_count, COALESCE(l.crash_count, c.crash_count) AS crash_count,
  COALESCE(l.fence, c.fence) AS fence, c.timeline,
  COALESCE(l.actor, c.actor) AS actor, COALESCE(l.message, '') AS message,
  CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END AS lease_expires_at,
  l.next_retry_at, COALESCE(l.delivery, '') AS delivery, l.error_code, c.call_id, c.created_at
FROM ingest_task_log l
JOIN ingest_task_call c ON c.no = l.call_no;
