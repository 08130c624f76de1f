-- The X-Request-Id of the request that made a task: in the row, its deliveries and the worker's log lines.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'ingest_task' AND column_name = 'request_id');
SET @step = IF(@missing, 'ALTER TABLE ingest_task ADD COLUMN request_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''''', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
