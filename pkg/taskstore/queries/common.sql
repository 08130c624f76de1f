-- Statements of the task store that are the same in every dialect.
-- t is a task's state, b its body. Columns, Changed, Assignments, Guards, Said, Sayings, Made and MadeTypes are made of the
-- table of columns (columns.go).

-- name: OfUser
AND b.user_id = ?

-- The primary key is forced: on a small table the server would read all of it, and lock or wait for rows of others.
-- States with their bodies, each found by its key.
-- name: WithBody
ingest_task_state t @force(PRIMARY)
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)

-- Whether the state was changed after the statement had begun, so that its body is not of the same time.
-- name: Moved
0

-- name: Lock
SELECT @now, (SELECT value FROM timeline WHERE id = 1), @include(Moved), @include(Locked)
FROM @include(WithBody)
WHERE t.id IN (@list) @scope
ORDER BY t.id
@forupdateof(t)

-- Calls that left tasks in a status, in the order in which they wake, from a place on, with the database's clock and epoch.
-- name: Waking
SELECT no, wake_at, ids, @now, (SELECT value FROM timeline WHERE id = 1)
FROM ingest_task_call @force(ingest_task_call_wake)
WHERE to_status = ? AND wake_at < @never AND (wake_at > ? OR (wake_at = ? AND no > ?))
ORDER BY wake_at, no
LIMIT ?

-- Which tasks of calls wake. Nothing is locked: whoever changes one of them writes a call of its own.
-- name: WakingStates
SELECT @textid(t.id), @include(WakesAt), t.updated_at, t.fence, t.lease_owner
FROM ingest_task_state t @force(PRIMARY)
WHERE @ids AND t.status = ? AND @include(WakesAt) < @never

-- name: WakingAmong
t.id IN (@list)

-- name: WakingBetween
t.id BETWEEN ? AND ?

-- When a task wakes: a claim with the lease of its process, and at once where that is not to be found; what succeeded never.
-- name: WakesAt
CASE WHEN t.status = 'RUNNING' AND t.lease_owner <> 0
  THEN COALESCE((SELECT w.lease_until FROM ingest_worker w WHERE w.no = t.lease_owner >> 36), t.updated_at)
  WHEN t.status = 'SUCCEEDED' THEN @never ELSE t.wake_at END

-- The calls of a process that wake, as Waking.
-- name: WakingOf
SELECT no, wake_at, ids, @now, (SELECT value FROM timeline WHERE id = 1)
FROM ingest_task_call @force(ingest_task_call_wake)
WHERE to_status = 'RUNNING' AND wake_at < @never AND (wake_at > ? OR (wake_at = ? AND no > ?)) AND actor = ?
ORDER BY wake_at, no
LIMIT ?

-- name: WakingEnded
SELECT no, wake_at, (SELECT value FROM timeline WHERE id = 1)
FROM ingest_task_call @force(ingest_task_call_wake)
WHERE to_status IN ('SUCCEEDED', 'SUSPENDED', 'CANCELLED') AND wake_at < @never
LIMIT ?

-- name: WakingLock
SELECT no, wake_at, COALESCE(from_status, ''), to_status, tasks, COALESCE(owners, '')
FROM ingest_task_call @force(PRIMARY)
WHERE no IN (@list) AND wake_at < @never
ORDER BY no
@skiplocked

-- name: WakingMove
UPDATE ingest_task_call @force(PRIMARY)
SET wake_at = ?
WHERE no = ?

-- name: WakingEnd
UPDATE ingest_task_call @force(PRIMARY)
SET wake_at = @never
WHERE no IN (@list)

-- name: CountAdd
UPDATE ingest_task_count
SET n = n + ?
WHERE status = ?

-- name: CountOwner
INSERT INTO ingest_task_owner (user_id, knowledge_base_id, status, n)
VALUES (@rows:4)
ON CONFLICT (user_id, knowledge_base_id, status) DO UPDATE SET n = ingest_task_owner.n + excluded.n

-- The states that a sweep found, where they still wake by then and nobody has locked them.
-- name: Sweep
SELECT @now, (SELECT value FROM timeline WHERE id = 1), @include(Moved), @include(Locked)
FROM @include(WithBody)
WHERE t.id IN (@list) AND t.status = ? AND @include(WakesAt) < ?
ORDER BY t.id
@skiplockedof(t)

-- Claims whose process's lease ends before a moment, with a lock on its row until the end of the transaction: it cannot renew it meanwhile.
-- name: Lapsed
SELECT @textid(t.id)
FROM ingest_task_state t @force(PRIMARY)
@thenjoin ingest_worker w ON w.no = t.lease_owner >> 36
WHERE t.id IN (@list) AND w.lease_until < ?
@skiplockedof(w)

-- The processes of owners.
-- name: WorkersNumbered
SELECT no, name, lease_until
FROM ingest_worker
WHERE no IN (@list)

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
INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, attempt_count, crash_count, fence, lease_expires_at, wake_at, tasks, ids, created_at, owners)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

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

-- Calls that left tasks in a status, by their time, from a time on: the parts of a list by updated_at, and of one of rare tasks (list_calls.go).
-- name: CallsUp
SELECT no, created_at, ids, @now, (SELECT value FROM timeline WHERE id = 1)
FROM ingest_task_call @force(ingest_task_call_made)
WHERE to_status = ? AND created_at >= ? AND (created_at > ? OR no > ?)
ORDER BY created_at, no
LIMIT ?

-- name: CallsDown
SELECT no, created_at, ids, @now, (SELECT value FROM timeline WHERE id = 1)
FROM ingest_task_call @force(ingest_task_call_made)
WHERE to_status = ? AND created_at <= ? AND (created_at < ? OR no < ?)
ORDER BY created_at DESC, no DESC
LIMIT ?

-- Those of some tasks that are in a status and pass the filters.
-- name: ListAmong
SELECT b.id, t.updated_at, b.created_at
FROM ingest_task_state t @force(PRIMARY)
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
WHERE t.id IN (@list) AND t.status = ? @scope @filters

-- name: ListOf
SELECT @include(Columns)
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id)
WHERE b.id IN (@list)

-- One row of a list by created_at.
-- name: ListEdge
SELECT b.created_at, b.id FROM ingest_task_body b WHERE 1 = 1 @scope @filters

-- name: ListID
AND b.id = ?

-- name: ListStatuses
AND t.status IN (@list)

-- name: ListBase
AND b.knowledge_base_id = ?

-- name: ListDocument
AND b.document_id = ?

-- name: ListStage
AND t.stage = ?

-- name: ListText
AND (LOWER(b.id) LIKE LOWER(?) ESCAPE '!' OR @include(TextOfTask))

-- Text that is not ASCII is in no id, and MySQL would refuse the comparison.
-- name: ListTextBeyond
AND (@include(TextOfTask))

-- The name of its file is in a document's payload (pkg/ingest, Payload.FileName), which its accept wrote as JSON.
-- name: TextOfTask
LOWER(b.file_path) LIKE LOWER(?) ESCAPE '!' OR LOWER(b.last_error) LIKE LOWER(?) ESCAPE '!'
OR LOWER(CASE WHEN b.payload LIKE '{%"fileName":"%' THEN @include(FileName) END) LIKE LOWER(?) ESCAPE '!'

-- name: ListUser
AND b.user_id = ?

-- name: ListType
AND b.type = ?

-- name: ListWorkflow
AND b.workflow_id = ?

-- name: ListCode
AND b.error_code = ?

-- name: ListError
AND LOWER(b.last_error) LIKE LOWER(?) ESCAPE '!'

-- name: ListFileName
AND LOWER(CASE WHEN b.payload LIKE '{%"fileName":"%' THEN @include(FileName) END) LIKE LOWER(?) ESCAPE '!'

-- name: ListAttemptsFrom
AND t.attempt_count >= ?

-- name: ListAttemptsBelow
AND t.attempt_count < ?

-- A list of a failure group: its own order is that of created_at.
-- name: ListFailing
SELECT @include(Columns)
FROM task_failure f
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = f.task_id
@thenjoin ingest_task_state t @force(PRIMARY) ON t.id = @rawid(b.id)
WHERE f.group_id = ? @scope

-- name: FailingEdge
SELECT f.created_at, f.task_id
FROM task_failure f
WHERE f.group_id = ?

-- name: FailingCreatedUp
AND f.created_at >= ? AND (f.created_at > ? OR f.task_id > ?)

-- name: FailingCreatedDown
AND f.created_at <= ? AND (f.created_at < ? OR f.task_id < ?)

-- name: FailingUpToCreatedUp
AND f.created_at <= ? AND (f.created_at < ? OR f.task_id <= ?)

-- name: FailingUpToCreatedDown
AND f.created_at >= ? AND (f.created_at > ? OR f.task_id >= ?)

-- name: FailingOrderCreatedUp
ORDER BY f.created_at, f.task_id
LIMIT ?

-- name: FailingOrderCreatedDown
ORDER BY f.created_at DESC, f.task_id DESC
LIMIT ?

-- How many tasks pass filters, by status.
-- name: CountMatching
SELECT t.status, COUNT(*)
FROM ingest_task_body b
@thenjoin ingest_task_state t @force(PRIMARY) ON t.id = @rawid(b.id)
WHERE 1 = 1 @scope @filters
GROUP BY t.status

-- As CountMatching, where tasks of the statuses that are asked for are few.
-- name: CountOfStatuses
SELECT t.status, COUNT(*)
FROM ingest_task_state t
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
WHERE 1 = 1 @scope @filters
GROUP BY t.status

-- As CountMatching, where tasks of other statuses than one are few: all that pass the other filters, less those.
-- name: CountWithout
SELECT COUNT(*) - (
  SELECT COUNT(*)
  FROM ingest_task_state t
  @thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
  WHERE t.status <> ? @scope @filters
)
FROM ingest_task_body b
WHERE 1 = 1 @scope @filters

-- name: CountFailing
SELECT t.status, COUNT(*)
FROM task_failure f
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = f.task_id
@thenjoin ingest_task_state t @force(PRIMARY) ON t.id = @rawid(b.id)
WHERE f.group_id = ? @scope @filters
GROUP BY t.status

-- Where tasks are counted among the failures.
-- name: FailureOf
SELECT task_id, failure_id
FROM task_failure
WHERE task_id IN (@list)

-- name: FailureGone
DELETE FROM task_failure
WHERE task_id IN (@list)

-- name: FailurePut
INSERT INTO task_failure (task_id, failure_id, group_id, created_at)
VALUES (@rows:4)
ON CONFLICT (task_id) DO UPDATE SET failure_id = excluded.failure_id, group_id = excluded.group_id

-- name: FailureGroupPut
INSERT INTO failure_group (id, group_id, user_id, knowledge_base_id, stage, error_code, pattern, permanent, failures, tasks, task_id, sample, message, first_at, last_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET failures = failure_group.failures + excluded.failures, tasks = failure_group.tasks + excluded.tasks,
  permanent = excluded.permanent, last_at = excluded.last_at

-- name: FailureGroupLess
UPDATE failure_group
SET tasks = tasks - ?
WHERE id = ?

-- name: FailureGroupsForget
DELETE FROM failure_group
WHERE tasks = 0 AND last_at < @in(?)

-- Groups of failures by their cause, that with the latest failure first.
-- name: FailureGroups
SELECT g.group_id, MAX(g.last_at), SUM(g.failures), SUM(g.tasks), MIN(g.first_at)
FROM failure_group g
WHERE 1 = 1 @scope @filters
GROUP BY g.group_id
@having
ORDER BY MAX(g.last_at) DESC, g.group_id DESC
LIMIT ?

-- name: FailureGroupsOf
SELECT g.group_id, g.user_id, g.knowledge_base_id, g.stage, g.error_code, g.pattern, g.permanent, g.failures, g.tasks, g.task_id, g.sample, g.message, g.first_at, g.last_at
FROM failure_group g
WHERE g.group_id IN (@list) @scope
ORDER BY g.last_at DESC, g.id

-- name: GroupOfUser
AND g.user_id = ?

-- name: GroupOfBase
AND g.knowledge_base_id = ?

-- name: GroupID
AND g.group_id = ?

-- name: GroupsAfter
HAVING MAX(g.last_at) < ? OR (MAX(g.last_at) = ? AND g.group_id < ?)

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

-- name: ListUpToCreatedUp
AND b.created_at <= ? AND (b.created_at < ? OR b.id <= ?)

-- name: ListUpToCreatedDown
AND b.created_at >= ? AND (b.created_at > ? OR b.id >= ?)

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
l.call_no, @textid(l.task_id), c.from_status, c.to_status, c.reason,
COALESCE(l.attempt_count, c.attempt_count), COALESCE(l.crash_count, c.crash_count), COALESCE(l.fence, c.fence), c.timeline,
COALESCE(l.actor, c.actor), l.message, CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END,
l.next_retry_at, l.delivery, l.error_code, c.created_at

-- name: Transitions
SELECT @include(TransitionColumns)
FROM ingest_task_log l
JOIN ingest_task_call c ON c.no = l.call_no
WHERE l.task_id = @rawid(?) AND l.call_no > ?
ORDER BY l.call_no
LIMIT ?

-- name: CallsIn
SELECT no
FROM ingest_task_call @force(PRIMARY)
WHERE (@any no BETWEEN ? AND ?)
ORDER BY no
LIMIT ?

-- name: FirstCall
SELECT no
FROM ingest_task_call @force(PRIMARY)
WHERE created_at >= ?
ORDER BY no
LIMIT 1

-- name: TasksOfCalls
SELECT no, created_at, ids, @now, (SELECT value FROM timeline WHERE id = 1)
FROM ingest_task_call @force(PRIMARY)
WHERE no IN (@list)
ORDER BY no

-- name: Changes
SELECT @include(TransitionColumns)
FROM ingest_task_log l @force(PRIMARY)
@thenjoin ingest_task_call c ON c.no = l.call_no
WHERE (@any l.task_id = ? AND l.call_no = ?)
ORDER BY l.call_no, l.task_id

-- name: Exists
SELECT 1
FROM ingest_task_body b
WHERE b.id = ? @scope

-- name: Counts
SELECT c.status, SUM(c.n)
FROM (
  SELECT status, n FROM ingest_task_count
  UNION ALL
  SELECT CASE k.sign WHEN 1 THEN m.to_status ELSE m.from_status END, k.sign * m.n
  FROM (
    SELECT to_status, from_status, SUM(tasks) AS n
    FROM ingest_task_call @force(ingest_task_call_wake)
    WHERE to_status IN (@waking) AND wake_at < @never
    GROUP BY to_status, from_status
  ) m
  CROSS JOIN (SELECT 1 AS sign UNION ALL SELECT -1) k
) c
WHERE c.status IS NOT NULL
GROUP BY c.status
HAVING SUM(c.n) > 0

-- Tasks that are QUEUED, without those that QUEUED calls which wake have brought.
-- name: QueuedBeside
SELECT COALESCE(SUM(c.n), 0)
FROM (
  SELECT n FROM ingest_task_count WHERE status = 'QUEUED'
  UNION ALL
  SELECT -tasks
  FROM ingest_task_call @force(ingest_task_call_wake)
  WHERE to_status IN ('RUNNING', 'SUSPENDED', 'CANCELLED') AND wake_at < @never AND from_status = 'QUEUED' -- no other status follows QUEUED
) c

-- What those have brought, in the order of their waking.
-- name: QueuedCalls
SELECT no, wake_at, tasks
FROM ingest_task_call @force(ingest_task_call_wake)
WHERE to_status = 'QUEUED' AND wake_at < @never AND (wake_at > ? OR (wake_at = ? AND no > ?))
ORDER BY wake_at, no
LIMIT ?

-- What is counted of users and knowledge bases, and what calls that wake have moved: rows of a status and a number, or of a call.
-- name: CountsOf
SELECT knowledge_base_id, status, '', n, ''
FROM ingest_task_owner
WHERE 1 = 1 @scope @base
UNION ALL
SELECT '', to_status, COALESCE(from_status, ''), 0, owners
FROM ingest_task_call @force(ingest_task_call_wake)
WHERE to_status IN (@waking) AND wake_at < @never
  AND owners IS NOT NULL @owners

-- name: OwnersNamed
AND owners LIKE ? ESCAPE '!'

-- Calls that changed no status, or are older than the column, do not say whose tasks theirs are.
-- name: OwnersMayName
AND (owners IS NULL OR owners LIKE ? ESCAPE '!')

-- The tasks that calls which wake name: each that has not ended is among them.
-- name: OpenCalls
SELECT to_status, ids
FROM ingest_task_call @force(ingest_task_call_wake)
WHERE to_status IN ('QUEUED', 'RUNNING', 'RETRYING') AND wake_at < @never @owners

-- name: StagesAmong
SELECT t.stage, COUNT(*)
FROM ingest_task_state t @force(PRIMARY)
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
WHERE t.id IN (@list) AND t.status = 'RUNNING' @filters
GROUP BY t.stage

-- name: OldestAmong
SELECT MIN(b.created_at)
FROM ingest_task_state t @force(PRIMARY)
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
WHERE t.id IN (@list) AND t.status IN ('QUEUED', 'RUNNING', 'RETRYING') @filters

-- Calls that ended tasks, the newest ones.
-- name: EndedCalls
SELECT created_at, tasks, COALESCE(owners, ''), @now
FROM ingest_task_call @force(ingest_task_call_made)
WHERE to_status IN ('SUCCEEDED', 'DEAD') AND reason <> 'SILENT' AND created_at > @in(?) @owners
ORDER BY no DESC
LIMIT 10000

-- Calls that made tasks SUCCEEDED, the newest ones.
-- name: DoneCalls
SELECT to_status, ids
FROM ingest_task_call @force(ingest_task_call_made)
WHERE to_status = 'SUCCEEDED' AND reason <> 'SILENT' AND created_at > @in(?) @owners
ORDER BY no DESC
LIMIT ?

-- Calls that ended tasks in a span, and those of a status, the newest ones.
-- name: PastCalls
SELECT COUNT(*), COALESCE(SUM(tasks), 0)
FROM (SELECT tasks
  FROM ingest_task_call @force(ingest_task_call_made)
  WHERE to_status = ? AND reason <> 'SILENT' AND created_at >= ? AND created_at < ?
  LIMIT ?) c

-- name: PastDone
SELECT to_status, ids
FROM ingest_task_call @force(ingest_task_call_made)
WHERE to_status = 'SUCCEEDED' AND reason <> 'SILENT' AND created_at >= ? AND created_at < ?
ORDER BY created_at DESC, no DESC
LIMIT ?

-- name: TookAmong
SELECT b.created_at, t.updated_at
FROM ingest_task_state t @force(PRIMARY)
@thenjoin ingest_task_body b @force(PRIMARY) ON b.id = @textid(t.id)
WHERE t.id IN (@list) AND t.status = 'SUCCEEDED' @filters

-- name: OwnedBy
AND user_id = ?

-- name: OwnedIn
AND knowledge_base_id = ?

-- name: OwnedAmong
AND knowledge_base_id IN (@list)

-- It writes nothing, but every server refuses it where it does not accept writes.
-- name: TimelineRenew
UPDATE timeline
SET value = ?
WHERE id = 1

-- Claims of the history that is gone: whoever sweeps next takes them over.
-- name: LeasesExpire
UPDATE ingest_worker
SET lease_until = @now
WHERE lease_until > @now

-- name: Running
SELECT COUNT(*)
FROM ingest_task_state
WHERE status = 'RUNNING'

-- A process: the number of its row is part of what states say of their owners.
-- name: WorkerAdd
INSERT INTO ingest_worker (name, lease_until, created_at, slots) VALUES (?, ?, ?, ?)

-- name: Workers
SELECT name, created_at, lease_until, CASE WHEN lease_until > @now THEN 1 ELSE 0 END, COALESCE(slots, -1), drain_at, drained_at
FROM ingest_worker
WHERE no > 0 AND lease_until > @in(?)
ORDER BY no DESC
LIMIT ?

-- name: WorkerDrains
SELECT CASE WHEN drain_at IS NULL THEN 0 ELSE 1 END
FROM ingest_worker
WHERE no = ?

-- name: WorkerDrained
UPDATE ingest_worker
SET drained_at = @now
WHERE no = ? AND drain_at IS NOT NULL AND drained_at IS NULL

-- name: WorkerNamed
SELECT no
FROM ingest_worker
WHERE no > 0 AND name = ? AND lease_until > @in(?)
ORDER BY no DESC
LIMIT 1

-- name: WorkerDrain
UPDATE ingest_worker
SET drain_at = @now, drained_at = NULL
WHERE no = ? AND drain_at IS NULL

-- name: WorkerTake
UPDATE ingest_worker
SET drain_at = NULL, drained_at = NULL
WHERE no = ?

-- A heartbeat that comes late shortens no lease.
-- name: WorkerRenew
UPDATE ingest_worker
SET lease_until = CASE WHEN lease_until < ? THEN ? ELSE lease_until END, slots = COALESCE(?, slots)
WHERE no = ? AND (SELECT value FROM timeline WHERE id = 1) = ?

-- The database's clock was set back: the lease of before ends long after those that the process gives now.
-- name: WorkerShorten
UPDATE ingest_worker
SET lease_until = ?, slots = COALESCE(?, slots)
WHERE no = ? AND (SELECT value FROM timeline WHERE id = 1) = ?

-- name: WakingNowOf
UPDATE ingest_task_call
SET wake_at = @now
WHERE to_status = 'RUNNING' AND wake_at < @never AND wake_at > ? AND actor = ?

-- name: WakingNow
UPDATE ingest_task_call
SET wake_at = @now
WHERE to_status = 'RUNNING' AND wake_at < @never AND wake_at > @now

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
  wake_at = CASE c.renew WHEN 1 THEN @in(c.lease) ELSE t.wake_at END,
  updated_at = CASE WHEN c.stage IS NULL OR (t.stage = c.stage AND t.progress = c.percent AND t.processed_segments = c.processed AND t.total_segments = c.total)
    THEN t.updated_at ELSE @now END,
  stage = COALESCE(c.stage, t.stage),
  progress = COALESCE(c.percent, t.progress),
  processed_segments = COALESCE(c.processed, t.processed_segments),
  total_segments = COALESCE(c.total, t.total_segments)
FROM @json(id text, status text, fence bigint, timeline text, owner bigint, renew bigint, lease bigint,
  stage text, percent bigint, processed bigint, total bigint)
WHERE t.id = @rawid(c.id)
  AND t.status = c.status
  AND t.fence = c.fence AND t.lease_owner = c.owner
  AND CAST((SELECT value FROM timeline WHERE timeline.id = 1) AS text) = c.timeline
