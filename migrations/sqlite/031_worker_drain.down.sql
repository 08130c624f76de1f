ALTER TABLE ingest_worker DROP COLUMN drained_at;
ALTER TABLE ingest_worker DROP COLUMN drain_at;
