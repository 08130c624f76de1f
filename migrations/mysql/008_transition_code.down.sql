SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'ingest_task_transition' AND column_name = 'error_code');
SET @step = IF(@there, 'ALTER TABLE ingest_task_transition DROP COLUMN error_code', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
