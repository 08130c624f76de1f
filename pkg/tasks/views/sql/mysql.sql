-- name: Put
INSERT INTO saved_view (id, user_id, name, filter, shared, created_at)
VALUES (?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE filter = VALUES(filter), shared = VALUES(shared)
