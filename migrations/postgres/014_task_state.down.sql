-- One table again, of what the two say.
DROP VIEW ingest_task_transition;
DROP VIEW ingest_task;

ALTER TABLE ingest_task_body RENAME TO ingest_task;
ALTER TABLE ingest_task SET (fillfactor = 85);
-- Those without a default get one for the rows that are there.
ALTER TABLE ingest_task
  ADD COLUMN status VARCHAR(16) COLLATE "C" NOT NULL DEFAULT 'QUEUED' CHECK (status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED')),
  ADD COLUMN stage VARCHAR(16) NOT NULL DEFAULT 'none' CHECK (stage IN ('none', 'extract', 'split', 'embed', 'index', 'switch', 'run', 'done')),
  ADD COLUMN progress SMALLINT NOT NULL DEFAULT 0,
  ADD COLUMN processed_segments INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN total_segments INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN attempt_count INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN crash_count INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN throttle_count INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN next_retry_at TIMESTAMPTZ NULL,
  ADD COLUMN fence BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN lease_owner VARCHAR(32) NOT NULL DEFAULT '',
  ADD COLUMN lease_expires_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  ADD COLUMN wake_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  ADD COLUMN promised_at TIMESTAMPTZ NOT NULL DEFAULT '9999-12-31 00:00:00+00',
  ADD COLUMN promise_count INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN dlq_state VARCHAR(16) NOT NULL DEFAULT 'none' CHECK (dlq_state IN ('none', 'owed', 'written')),
  ADD COLUMN delivery VARCHAR(31) NOT NULL DEFAULT '',
  ADD COLUMN attempt_traceparent VARCHAR(55) NOT NULL DEFAULT '',
  ADD COLUMN updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
  ADD COLUMN listed_at TIMESTAMPTZ GENERATED ALWAYS AS (CASE
      WHEN status = 'RUNNING' OR (status = 'QUEUED' AND wake_at = updated_at)
        OR (status IN ('SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') AND wake_at = '9999-12-31 00:00:00+00') THEN NULL
      ELSE updated_at END) STORED;
UPDATE ingest_task b SET
  status = t.status, stage = t.stage, progress = t.progress, processed_segments = t.processed_segments,
  total_segments = t.total_segments, attempt_count = t.attempt_count, crash_count = t.crash_count,
  throttle_count = t.throttle_count, next_retry_at = t.next_retry_at, fence = t.fence, lease_owner = LEFT(COALESCE((SELECT w.name || '/' || (t.lease_owner & 68719476735) FROM ingest_worker w WHERE w.no = t.lease_owner >> 36), ''), 32),
  lease_expires_at = CASE WHEN t.status = 'RUNNING' OR t.status IN ('QUEUED', 'RETRYING') AND t.lease_owner <> 0 THEN t.wake_at ELSE TIMESTAMPTZ '9999-12-31 00:00:00+00' END,
  wake_at = CASE t.status WHEN 'SUCCEEDED' THEN TIMESTAMPTZ '9999-12-31 00:00:00+00' ELSE t.wake_at END, promised_at = t.promised_at,
  promise_count = t.promise_count, dlq_state = t.dlq_state, delivery = t.delivery,
  attempt_traceparent = t.attempt_traceparent, updated_at = t.updated_at
FROM ingest_task_state t
WHERE t.id = CAST(b.id AS uuid);
ALTER TABLE ingest_task ALTER COLUMN status DROP DEFAULT, ALTER COLUMN updated_at DROP DEFAULT,
  ADD CONSTRAINT ingest_task_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  ADD CONSTRAINT ingest_task_counts CHECK (attempt_count >= 0 AND crash_count >= 0 AND throttle_count >= 0 AND promise_count >= 0 AND fence >= 0),
  ADD CONSTRAINT ingest_task_progress CHECK (progress BETWEEN 0 AND 100);
DROP TABLE ingest_task_state;
DROP TABLE ingest_worker;
DROP TABLE ingest_task_count;
UPDATE ingest_task_call SET wake_at = '9999-12-31 00:00:00+00' WHERE wake_at < '9999-12-31 00:00:00+00';
-- the one sweep index (design D3): one status by equality, then exactly this order; by updated_at it also lists
-- what has ended (wake_at: never) and what was just queued (wake_at = updated_at), and listed_at lists the rest
CREATE INDEX ingest_task_sweep ON ingest_task (status, wake_at, updated_at, id);
CREATE INDEX ingest_task_listed ON ingest_task (listed_at, id) WHERE listed_at IS NOT NULL;

-- The task leads: its row has the id as text, which finds the log.
CREATE VIEW ingest_task_transition AS
SELECT l.call_no AS id, t.id AS task_id, c.from_status, c.to_status, c.reason, COALESCE(l.attempt_count, c.attempt_count) AS attempt_count, COALESCE(l.crash_count, c.crash_count) AS crash_count,
  COALESCE(l.fence, c.fence) AS fence, c.timeline,
  COALESCE(l.actor, c.actor) AS actor, COALESCE(l.message, '') AS message,
  CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END AS lease_expires_at,
  l.next_retry_at, COALESCE(l.delivery, '') AS delivery, l.error_code, c.call_id, c.created_at
FROM ingest_task t
JOIN ingest_task_log l ON l.task_id = CAST(t.id AS uuid)
JOIN ingest_task_call c ON c.no = l.call_no;
