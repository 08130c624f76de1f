-- name: MigrateLock
SELECT 1
