-- Statements on audit_event. It is append-only: nothing here changes or deletes a row, and a test looks at that.

-- name: EventInsert
INSERT INTO audit_event (created_at, action, actor, role, key_id, ip, request_id, target, detail, times)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: EventList
-- Fragments follow, each beginning with AND.
SELECT id, created_at, action, actor, role, key_id, ip, request_id, target, detail, times
FROM audit_event
WHERE id < ?

-- name: EventAction
  AND action = ?

-- name: EventActor
  AND (actor = ?)

-- name: EventOrder
ORDER BY id DESC
LIMIT ?
