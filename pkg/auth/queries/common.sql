-- Statements on api_key. The secret is never in any of them: a key is found by its digest (uq_api_key_digest).

-- name: KeyInsert
INSERT INTO api_key (id, user_id, name, role, scopes, bases, digest, shown, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: KeyBase
SELECT id FROM knowledge_base WHERE user_id = ? AND deleted_at IS NULL AND (id = ? OR live_name = ?);

-- name: KeyFind
-- The database's clock judges the end of a key.
SELECT @now, id, user_id, name, role, scopes, COALESCE(bases, ''), shown, created_at, expires_at, revoked_at, last_used_at
FROM api_key
WHERE digest = ?;

-- name: KeysFind
SELECT digest, @now, id, user_id, name, role, scopes, COALESCE(bases, ''), shown, created_at, expires_at, revoked_at, last_used_at
FROM api_key
WHERE digest IN (@list);

-- name: KeyList
SELECT id, user_id, name, role, scopes, COALESCE(bases, ''), shown, created_at, expires_at, revoked_at, last_used_at
FROM api_key
ORDER BY created_at DESC, id DESC
LIMIT ?;

-- name: KeyListAfter
SELECT id, user_id, name, role, scopes, COALESCE(bases, ''), shown, created_at, expires_at, revoked_at, last_used_at
FROM api_key
WHERE created_at < ?
   OR (created_at = ? AND id < ?)
ORDER BY created_at DESC, id DESC
LIMIT ?;

-- name: KeyLock
SELECT id FROM api_key WHERE id = ? @forupdate;

-- name: KeyRevoke
UPDATE api_key SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL;

-- name: KeyUsed
UPDATE api_key SET last_used_at = ?
WHERE (last_used_at IS NULL OR last_used_at < ?)
  AND id IN (@list);
