-- How many tasks a process may run at once, as it said with its last renewal; NULL: it has not said it. No row is rewritten.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'ingest_worker' AND column_name = 'slots');
SET @step = IF(@missing, 'ALTER TABLE ingest_worker ADD COLUMN slots INT NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
