-- Statements of the mirror. t is a task's state.

-- A page of all states in the order of their ids, which is that of their making.
-- name: States
SELECT t.id, t.status
FROM ingest_task_state t @force(PRIMARY)
WHERE t.id > ?
ORDER BY t.id
LIMIT ?

-- name: StatesOf
SELECT t.id, t.status
FROM ingest_task_state t @force(PRIMARY)
WHERE t.id IN (@list)

-- name: FailurePut
INSERT INTO mirror_failure (task_id, reason, tries, created_at, updated_at)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task_id) DO UPDATE SET reason = excluded.reason, tries = mirror_failure.tries + excluded.tries, updated_at = excluded.updated_at

-- name: FailureRemove
DELETE FROM mirror_failure
WHERE task_id IN (@list)

-- name: FailureIDs
SELECT task_id
FROM mirror_failure
WHERE task_id > ?
ORDER BY task_id
LIMIT ?

-- The lease goes to whoever has it, or when it was left or has ended. One that lasts too long is from before the database's clock was
-- set back.
-- name: LeaseTake
UPDATE mirror_lease SET holder = ?, lease_until = ?
WHERE id = 1 AND (holder IN (?, '') OR lease_until < ? OR lease_until > ?)

-- name: LeaseLeave
UPDATE mirror_lease SET holder = ''
WHERE id = 1 AND holder = ?

-- name: LeaseHolder
SELECT holder FROM mirror_lease WHERE id = 1
