ALTER TABLE ingest_task_transition DROP COLUMN IF EXISTS error_code;
