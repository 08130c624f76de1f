SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'ingest_task' AND column_name = 'request_id');
SET @step = IF(@there, 'ALTER TABLE ingest_task DROP COLUMN request_id', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
