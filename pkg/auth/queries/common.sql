-- Statements on api_key. The secret is never in any of them: a key is found by its digest (uq_api_key_digest).

-- name: KeyInsert
INSERT INTO api_key (id, user_id, name, role, scopes, bases, digest, shown, created_at, expires_at, parent_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: KeyBase
SELECT id FROM knowledge_base WHERE user_id = ? AND deleted_at IS NULL AND (id = ? OR live_name = ?);

-- name: SessionsEnded
-- By ix_api_key_parent.
DELETE FROM api_key WHERE parent_id = ? AND expires_at < ?;

-- name: LoginsEnded
-- Sessions without a key: shown begins as their secret. By ix_api_key_parent.
DELETE FROM api_key WHERE parent_id IS NULL AND expires_at < ? AND shown LIKE 'mw_sess_%';

-- name: SessionOfLogin
-- Whether a session is one of a log-in without a key.
SELECT COUNT(*) FROM api_key WHERE digest = ? AND parent_id IS NULL;

-- name: SessionRevoke
-- No digest of a key comes here (checkShape).
UPDATE api_key SET revoked_at = ? WHERE digest = ? AND revoked_at IS NULL;

-- name: KeyLive
SELECT id, user_id, name, role, scopes, COALESCE(bases, ''), shown, created_at, expires_at, revoked_at, last_used_at
FROM api_key
WHERE id = ?
  AND parent_id IS NULL
  AND shown NOT LIKE 'mw_sess_%'
  AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > ?)
@forupdate;

-- name: KeysFind
-- Of keys and of sessions; the secret's shape says which (checkShape). A session is as its key is now, and ends with it; its row
-- has its own end and its own revocation. One of a log-in without a key is its own key, as a key is.
-- The database's clock judges the end.
SELECT s.digest, @now, k.id, k.user_id, k.name, k.role, k.scopes, COALESCE(k.bases, ''), k.shown, s.created_at, s.expires_at, COALESCE(s.revoked_at, k.revoked_at), k.last_used_at
FROM api_key s JOIN api_key k ON k.id = COALESCE(s.parent_id, s.id)
WHERE s.digest IN (@list);

-- name: KeyList
-- Sessions without a key are listed while they last.
SELECT id, user_id, name, role, scopes, COALESCE(bases, ''), shown, created_at, expires_at, revoked_at, last_used_at
FROM api_key
WHERE parent_id IS NULL
  AND (expires_at IS NULL OR expires_at > @now OR shown NOT LIKE 'mw_sess_%')
ORDER BY created_at DESC, id DESC
LIMIT ?;

-- name: KeyListAfter
SELECT id, user_id, name, role, scopes, COALESCE(bases, ''), shown, created_at, expires_at, revoked_at, last_used_at
FROM api_key
WHERE parent_id IS NULL
  AND (expires_at IS NULL OR expires_at > @now OR shown NOT LIKE 'mw_sess_%')
  AND (created_at < ? OR (created_at = ? AND id < ?))
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
