-- Postgres: rows of a batch come as an array a column (arrays.go), or as one JSON array, and the planner finds each task by its
-- primary key.

-- One statement writes the call and its rows.
-- name: Log
WITH made AS (@include(Call) RETURNING no)
INSERT INTO ingest_task_log (task_id, call_no @columns)
SELECT c.id, made.no @values
FROM made, @rows

-- The instant is the moment that the transaction began with: the caller knows the rows without reading them back.
-- name: InsertState
WITH made AS (
  INSERT INTO ingest_task_body (created_at, id @columns)
  SELECT CAST(? AS timestamptz), c.id @values
  FROM @bodies)
INSERT INTO ingest_task_state (status, wake_at, promised_at, updated_at, id)
SELECT 'QUEUED', CAST(? AS timestamptz), CAST(? AS timestamptz), CAST(? AS timestamptz), c.id
FROM @states

-- name: Update
UPDATE ingest_task_state AS t
SET
  @assignments
  updated_at = moment.at
FROM @rows, (SELECT COALESCE(CAST(? AS timestamptz), @now) AS at) AS moment
WHERE t.id = c.id @guards
  AND (SELECT value FROM timeline WHERE timeline.id = 1) = ?

-- A second condition, by which the state could lead, would make it expect one row of all, and sort them all for a page.
-- name: Tasks
ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id)

-- name: WorkerAdd
INSERT INTO ingest_worker (name, lease_until, created_at, slots) VALUES (?, ?, ?, ?) RETURNING no

-- name: HeartbeatHeld
SELECT c.id
FROM @json(id text, status text, fence bigint, timeline bigint, owner bigint)
JOIN ingest_task_state AS t ON t.id = @rawid(c.id)
WHERE t.status = c.status
  AND t.fence = c.fence AND t.lease_owner = c.owner
  AND (SELECT value FROM timeline WHERE timeline.id = 1) = c.timeline

-- name: TransitionsOf
SELECT @include(TransitionColumns)
FROM (SELECT c.id, c.after FROM @json(id uuid, after bigint)) AS b
JOIN ingest_task_log AS l ON l.task_id = b.id AND l.call_no > b.after
JOIN ingest_task_call AS c ON c.no = l.call_no
ORDER BY l.call_no, l.task_id
LIMIT ?

-- name: FileName
CAST(b.payload AS json) ->> 'fileName'

-- While its statistics know nothing of tasks that have just come, Postgres would read all bodies for a batch. OFFSET keeps the subquery as
-- it is: it runs for each state.
-- name: WithBody
ingest_task_state t
CROSS JOIN LATERAL (SELECT * FROM ingest_task_body y WHERE y.id = @textid(t.id) OFFSET 0) b

-- Of a row whose lock was waited for, Postgres returns the newest version, and of all else what was there when the statement began: nothing yet
-- in that version's place.
-- name: Moved
COALESCE((SELECT 0 FROM ingest_task_state s WHERE s.ctid = t.ctid), 1)
