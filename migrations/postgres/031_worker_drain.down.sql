ALTER TABLE ingest_worker DROP COLUMN drain_at, DROP COLUMN drained_at;
