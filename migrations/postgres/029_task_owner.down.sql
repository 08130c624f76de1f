ALTER TABLE ingest_task_call DROP COLUMN IF EXISTS owners;
DROP TABLE IF EXISTS ingest_task_owner;
