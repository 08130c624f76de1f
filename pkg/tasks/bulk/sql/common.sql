-- Statements about bulk operations.

-- name: Add
INSERT INTO bulk_operation (task_id, user_id, role, action, filter, knowledge_base_id, reason, per_second, matched, done, failed, skipped, after_at, after_id, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, -1, 0, 0, '{}', ?, '', ?, ?)

-- name: Remove
DELETE FROM bulk_operation
WHERE task_id = ?

-- name: Columns
task_id, user_id, role, action, filter, knowledge_base_id, reason, per_second, matched, done, failed, skipped, after_at, after_id, created_at, updated_at

-- name: Get
SELECT @include(Columns)
FROM bulk_operation
WHERE task_id = ? @scope

-- name: List
SELECT @include(Columns)
FROM bulk_operation
WHERE created_at <= ? AND (created_at < ? OR task_id < ?) @scope
ORDER BY created_at DESC, task_id DESC
LIMIT ?

-- name: OfUser
AND user_id = ?

-- name: Save
UPDATE bulk_operation
SET matched = ?, done = ?, failed = ?, skipped = ?, after_at = ?, after_id = ?, updated_at = ?
WHERE task_id = ?

-- The operation's claim, until the end of the transaction.
-- name: Hold
SELECT fence
FROM ingest_task_state
WHERE id = @rawid(?) AND status = 'RUNNING' AND fence = ? AND (SELECT value FROM timeline WHERE timeline.id = 1) = ?
@forupdate
