ALTER TABLE ingest_task DROP COLUMN request_id;
