-- name: MigrationDone
INSERT INTO schema_migrations (version, name, checksum, applied_at)
SELECT CAST(? AS integer), CAST(? AS text), CAST(? AS text), @now

-- name: TimelineSet
INSERT INTO timeline (id, value)
SELECT 1, CAST(? AS bigint)
WHERE NOT EXISTS (SELECT 1 FROM timeline)

-- name: MigrationsThere
SELECT COUNT(to_regclass('schema_migrations'))

-- The number is Millweir's own; the lock belongs to one database.
-- name: MigrateLock
SELECT 1 FROM (SELECT pg_advisory_lock(77106944100)) AS taken

-- name: MigrateUnlock
SELECT pg_advisory_unlock(77106944100)

-- name: ServerVersion
SELECT current_setting('server_version')
