-- Statements of every database: its clock, its history's name and its migrations.

-- name: Moment
SELECT @now, value
FROM timeline
WHERE id = 1

-- It writes nothing, but every server refuses it where it does not accept writes.
-- name: Ping
UPDATE timeline
SET value = value
WHERE id = 0

-- name: ServerVersion
SELECT sqlite_version()

-- name: MigrationsApplied
SELECT version, name, checksum, applied_at
FROM schema_migrations
ORDER BY version

-- name: MigrationDone
INSERT INTO schema_migrations (version, name, checksum, applied_at)
SELECT ?, ?, ?, @now

-- name: MigrationUndone
DELETE FROM schema_migrations
WHERE version = ?

-- name: TimelineSet
INSERT INTO timeline (id, value)
SELECT 1, ?
WHERE NOT EXISTS (SELECT 1 FROM timeline)

-- name: MigrationsThere
SELECT COUNT(*)
FROM sqlite_master
WHERE type = 'table' AND name = 'schema_migrations'
