-- The error code of the task after each change, so that the log says it when the row has another one. No row is rewritten.

ALTER TABLE ingest_task_transition ADD COLUMN error_code VARCHAR(64) NULL;
