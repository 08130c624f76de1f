ALTER TABLE ingest_task_call DROP COLUMN owners;
DROP TABLE ingest_task_owner;
