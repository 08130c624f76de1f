-- Statements of the runs of workflows.

-- The rows of runs that end now; the tasks' own rows have their results already.
-- name: RunsEnd
INSERT INTO workflow_runs (task_id, workflow_id, idempotency_key, status, result, created_at, updated_at)
SELECT b.id, b.workflow_id, b.idempotency_key, ?, b.result, b.created_at, ?
FROM ingest_task_body b
WHERE b.id IN (@list)
ON CONFLICT (task_id) DO UPDATE SET status = excluded.status, result = excluded.result, updated_at = excluded.updated_at

-- name: RunsAgain
DELETE FROM workflow_runs
WHERE task_id IN (@list)
