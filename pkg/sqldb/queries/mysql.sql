-- Seconds to wait for another runner.
-- name: MigrateLock
SELECT GET_LOCK(CONCAT('millweir.migrate.', LEFT(DATABASE(), 40)), 60)

-- name: MigrateUnlock
DO RELEASE_LOCK(CONCAT('millweir.migrate.', LEFT(DATABASE(), 40)))

-- name: MigrationsThere
SELECT COUNT(*)
FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'schema_migrations'

-- Those of the collations that this server has.
-- name: MigrateCollations
SELECT collation_name
FROM information_schema.collations
WHERE collation_name IN (@list)

-- name: TimelineSet
INSERT INTO timeline (id, value)
SELECT 1, ?
FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM timeline)

-- name: ServerVersion
SELECT VERSION()
