-- The error code of the task after each change, so that the log says it when the row has another one. No row is rewritten.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'ingest_task_transition' AND column_name = 'error_code');
SET @step = IF(@missing, 'ALTER TABLE ingest_task_transition ADD COLUMN error_code VARCHAR(64) NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
