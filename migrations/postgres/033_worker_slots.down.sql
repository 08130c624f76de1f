ALTER TABLE ingest_worker DROP COLUMN slots;
