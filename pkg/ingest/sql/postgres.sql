-- What Postgres says differently.

-- name: BaseKeep
SELECT id FROM knowledge_base WHERE id = ? AND deleted_at IS NULL FOR SHARE;
