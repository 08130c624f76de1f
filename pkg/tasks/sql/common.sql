-- Statements of the door for tasks, the same in every dialect.

-- name: TasksByKey
SELECT id, user_id, idempotency_key, request_hash, COALESCE(document_id, ''), COALESCE(knowledge_base_id, ''), COALESCE(file_path, '')
FROM ingest_task_body
WHERE (@any user_id = ? AND idempotency_key = ?);

-- Tasks of which RabbitMQ has confirmed no copy (design D19), the newest try first.
-- name: Uncopied
SELECT task_id, reason, updated_at
FROM mirror_failure
WHERE updated_at < ? OR (updated_at = ? AND task_id < ?)
ORDER BY updated_at DESC, task_id DESC
LIMIT ?;

-- name: UncopiedRemove
DELETE FROM mirror_failure
WHERE task_id = ?;
