-- Statements about saved views.

-- name: Put
INSERT INTO saved_view (id, user_id, name, filter, shared, created_at)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (user_id, name) DO UPDATE SET filter = excluded.filter, shared = excluded.shared

-- name: Named
SELECT id, user_id, name, filter, shared, created_at
FROM saved_view
WHERE user_id = ? AND name = ?

-- name: Count
SELECT COUNT(*)
FROM saved_view
WHERE user_id = ?

-- name: List
SELECT id, user_id, name, filter, shared, created_at
FROM saved_view
WHERE user_id = ? OR shared = 1
ORDER BY name, id

-- name: Delete
DELETE FROM saved_view
WHERE id = ? @scope

-- name: OfUser
AND user_id = ?
