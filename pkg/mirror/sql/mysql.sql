-- name: FailurePut
INSERT INTO mirror_failure (task_id, reason, tries, created_at, updated_at)
VALUES (?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE reason = VALUES(reason), tries = tries + VALUES(tries), updated_at = VALUES(updated_at)
