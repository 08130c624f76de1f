SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'ingest_task_call' AND column_name = 'owners');
SET @step = IF(@there, 'ALTER TABLE ingest_task_call DROP COLUMN owners, ALGORITHM = COPY', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
DROP TABLE IF EXISTS ingest_task_owner;
