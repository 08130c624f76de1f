ALTER TABLE ingest_task_transition DROP COLUMN error_code;
