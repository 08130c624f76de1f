-- Statements of the door for tasks, the same in every dialect.

-- name: TasksByKey
SELECT id, user_id, idempotency_key, request_hash, COALESCE(document_id, ''), COALESCE(knowledge_base_id, ''), COALESCE(file_path, '')
FROM ingest_task_body
WHERE (@any user_id = ? AND idempotency_key = ?);
