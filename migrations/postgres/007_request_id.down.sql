ALTER TABLE ingest_task DROP COLUMN IF EXISTS request_id;
