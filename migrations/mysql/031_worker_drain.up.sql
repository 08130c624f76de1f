-- An operator may ask a process to take no more tasks: drain_at is when that was asked, drained_at when the process had finished what it
-- had. NULL: not so. The API writes the first and clears both, the process writes the second. No row is rewritten.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'ingest_worker' AND column_name = 'drain_at');
SET @step = IF(@missing, 'ALTER TABLE ingest_worker ADD COLUMN drain_at DATETIME(6) NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'ingest_worker' AND column_name = 'drained_at');
SET @step = IF(@missing, 'ALTER TABLE ingest_worker ADD COLUMN drained_at DATETIME(6) NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
