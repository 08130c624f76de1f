-- name: RunsEnd
INSERT INTO workflow_runs (task_id, workflow_id, idempotency_key, status, result, created_at, updated_at)
SELECT b.id, b.workflow_id, b.idempotency_key, ?, b.result, b.created_at, ?
FROM ingest_task_body b
WHERE b.id IN (@list)
ON DUPLICATE KEY UPDATE status = VALUES(status), result = VALUES(result), updated_at = VALUES(updated_at)
