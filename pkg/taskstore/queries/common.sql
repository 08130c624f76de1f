-- Statements of the task store that are the same in every dialect.
-- t is a task's state, b its body. Columns, Changed, Assignments, Guards, Said, Sayings, Made and MadeTypes are made of the
-- table of columns (columns.go).

-- name: OfUser
AND b.user_id = ?

-- The primary key is forced: on a small table the server would read all of it, and lock or wait for rows of others.
-- name: Lock
SELECT @now, (SELECT value FROM timeline WHERE id = 1), @include(Columns)
FROM ingest_task_state t @force(PRIMARY)
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
WHERE t.id IN (@list) @scope
ORDER BY t.id
@forupdateof(t)

-- One status by equality and the index's own order: only so do two callers get disjoint rows
-- and does nothing else wait (design D3).
-- name: Sweep
SELECT @now, (SELECT value FROM timeline WHERE id = 1), @include(Columns)
FROM ingest_task_state t @force(ingest_task_sweep)
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
WHERE t.status = ? AND @until @exclude
ORDER BY t.wake_at, t.updated_at, t.id
LIMIT ?
@skiplockedof(t)

-- name: SweepUntil
t.wake_at <= @in(?)

-- name: SweepBefore
t.wake_at < ?

-- The index itself passes these over. On MariaDB their index entries stay locked until the sweep's end (measured, with and
-- without index condition pushdown), so another sweep of that moment leaves them out and a change of them waits a few ms.
-- name: SweepExclude
AND t.id NOT IN (@list)

-- name: Written
SELECT updated_at
FROM ingest_task_state
WHERE id = @rawid(?)

-- The timeline is read in a subquery: as a second table its one row would be locked, and every Hold would wait for the others.
-- name: Hold
SELECT @textid(t.id), @now, (SELECT value FROM timeline WHERE id = 1)
FROM ingest_task_state t @force(PRIMARY)
WHERE t.status = 'RUNNING' AND (@any t.id = ? AND t.fence = ?)
ORDER BY t.id
@forupdate

-- name: CallOf
SELECT c.created_at
FROM ingest_task_log l
JOIN ingest_task_call c ON c.no = l.call_no
WHERE l.task_id IN (@list) AND c.call_id = ?
LIMIT 1

-- name: Call
INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, lease_expires_at, tasks, ids, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: Get
SELECT @include(Columns)
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id)
WHERE b.id IN (@list) @scope

-- Either table may lead.
-- name: Tasks
ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id) AND b.id = @textid(t.id)

-- name: List
SELECT @include(Columns)
FROM @include(Tasks)
WHERE 1 = 1 @scope

-- A list by updated_at, or one bounded by it, is put together of parts: no index has all rows in that order, since every
-- change of a task would move its entry. Each part has its own column that says updated_at (list_updated.go).
-- name: ListParts
SELECT @include(Columns)
FROM (@parts) p
JOIN ingest_task_state t ON t.id = p.id
JOIN ingest_task_body b ON b.id = @textid(t.id)

-- name: ListPart
SELECT * FROM (
  SELECT t.id
  FROM @from
  WHERE @condition @scope @filters
) @alias

-- name: ListBySweep
ingest_task_state t @force(ingest_task_sweep)
  @thenjoin ingest_task_body b ON b.id = @textid(t.id)

-- name: ListByListed
ingest_task_state t @force(ingest_task_listed)
  @thenjoin ingest_task_body b ON b.id = @textid(t.id)

-- name: ListEnded
t.status = ? AND t.wake_at = @never

-- name: ListQueued
t.status = 'QUEUED' AND t.wake_at = t.updated_at

-- name: ListRunning
t.status = 'RUNNING'

-- name: ListApart
t.listed_at IS NOT NULL

-- name: ListStatuses
AND t.status IN (@list)

-- name: ListBase
AND b.knowledge_base_id = ?

-- name: ListDocument
AND b.document_id = ?

-- name: ListStage
AND t.stage = ?

-- name: ListText
AND (LOWER(b.id) LIKE LOWER(?) ESCAPE '!' OR LOWER(b.file_path) LIKE LOWER(?) ESCAPE '!' OR LOWER(b.last_error) LIKE LOWER(?) ESCAPE '!')

-- Text that is not ASCII is in no id, and MySQL would refuse the comparison.
-- name: ListTextBeyond
AND (LOWER(b.file_path) LIKE LOWER(?) ESCAPE '!' OR LOWER(b.last_error) LIKE LOWER(?) ESCAPE '!')

-- name: ListCreatedAfter
AND b.created_at > ?

-- name: ListCreatedBefore
AND b.created_at < ?

-- name: ListUpdatedAfter
AND t.updated_at > ?

-- name: ListUpdatedBefore
AND t.updated_at < ?

-- The first comparison is implied by the second; it lets the index start at the cursor.
-- name: ListCreatedUp
AND b.created_at >= ? AND (b.created_at > ? OR b.id > ?)

-- name: ListCreatedDown
AND b.created_at <= ? AND (b.created_at < ? OR b.id < ?)

-- name: ListUpdatedUp
AND t.updated_at >= ? AND (t.updated_at > ? OR b.id > ?)

-- name: ListUpdatedDown
AND t.updated_at <= ? AND (t.updated_at < ? OR b.id < ?)

-- name: ListOrderCreatedUp
ORDER BY b.created_at, b.id
LIMIT ?

-- name: ListOrderCreatedDown
ORDER BY b.created_at DESC, b.id DESC
LIMIT ?

-- name: ListOrderUpdatedUp
ORDER BY t.updated_at, t.id
LIMIT ?

-- name: ListOrderUpdatedDown
ORDER BY t.updated_at DESC, t.id DESC
LIMIT ?

-- name: TransitionColumns
l.call_no, @textid(l.task_id), c.from_status, c.to_status, c.reason, l.attempt_count, l.crash_count, l.fence, c.timeline,
COALESCE(l.actor, c.actor), l.message, CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END,
l.next_retry_at, l.delivery, l.error_code, c.created_at

-- name: Transitions
SELECT @include(TransitionColumns)
FROM ingest_task_log l
JOIN ingest_task_call c ON c.no = l.call_no
WHERE l.task_id = @rawid(?) AND l.call_no > ?
ORDER BY l.call_no
LIMIT ?

-- name: Exists
SELECT 1
FROM ingest_task_body b
WHERE b.id = ? @scope

-- name: Counts
SELECT t.status, COUNT(*)
FROM ingest_task_state t
GROUP BY t.status

-- name: CountsOf
SELECT t.status, COUNT(*)
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id)
WHERE 1 = 1 @scope @base
GROUP BY t.status

-- QUEUED rows can start whatever their wake time says; the others once it has come.
-- name: Due
SELECT COUNT(*), MIN(w.wake_at), @now
FROM (
  SELECT * FROM (SELECT t.wake_at FROM ingest_task_state t @force(ingest_task_sweep) WHERE t.status = 'QUEUED' ORDER BY t.wake_at LIMIT ?) q
  UNION ALL
  SELECT * FROM (SELECT t.wake_at FROM ingest_task_state t @force(ingest_task_sweep) WHERE t.status = 'RETRYING' AND t.wake_at <= @now ORDER BY t.wake_at LIMIT ?) r
  UNION ALL
  SELECT * FROM (SELECT t.wake_at FROM ingest_task_state t @force(ingest_task_sweep) WHERE t.status = 'RUNNING' AND t.wake_at <= @now ORDER BY t.wake_at LIMIT ?) x
) w

-- name: NextWake
SELECT t.wake_at, @now
FROM ingest_task_state t @force(ingest_task_sweep)
WHERE t.status = ?
ORDER BY t.wake_at, t.updated_at, t.id
LIMIT 1

-- It writes nothing, but every server refuses it where it does not accept writes.
-- name: TimelineRenew
UPDATE timeline
SET value = ?
WHERE id = 1

-- Claims and reservations of the history that is gone: whoever sweeps next takes them over.
-- name: LeasesExpire
UPDATE ingest_task_state
SET lease_expires_at = @now, wake_at = @now
WHERE status = 'RUNNING'

-- Where rows of a batch come as one JSON array.
-- name: Update
UPDATE ingest_task_state AS t
SET
  @include(Assignments),
  updated_at = @now
FROM @json(@include(Changed))
WHERE t.id = @rawid(c.id)
  AND @include(Guards)
  AND (SELECT value FROM timeline WHERE timeline.id = 1) = ? @earlier

-- name: Earlier
AND t.updated_at < @now

-- What a change writes of a body, once its state is written and so locked.
-- name: UpdateBody
UPDATE ingest_task_body AS t
SET
  @include(Sayings)
FROM @json(@include(Said))
WHERE t.id = c.id

-- name: Heartbeat
UPDATE ingest_task_state AS t
SET
  lease_expires_at = CASE c.renew WHEN 1 THEN @in(c.lease) ELSE t.lease_expires_at END,
  wake_at = CASE c.renew WHEN 1 THEN @in(c.lease) ELSE t.wake_at END,
  updated_at = CASE WHEN c.stage IS NULL OR (t.stage = c.stage AND t.progress = c.percent AND t.processed_segments = c.processed AND t.total_segments = c.total)
    THEN t.updated_at ELSE @now END,
  stage = COALESCE(c.stage, t.stage),
  progress = COALESCE(c.percent, t.progress),
  processed_segments = COALESCE(c.processed, t.processed_segments),
  total_segments = COALESCE(c.total, t.total_segments)
FROM @json(id text, status text, fence bigint, timeline text, owner text, renew bigint, lease bigint,
  stage text, percent bigint, processed bigint, total bigint)
WHERE t.id = @rawid(c.id)
  AND t.status = c.status
  AND t.fence = c.fence AND t.lease_owner = c.owner
  AND CAST((SELECT value FROM timeline WHERE timeline.id = 1) AS text) = c.timeline
