SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'ingest_worker' AND column_name = 'slots');
SET @step = IF(@there, 'ALTER TABLE ingest_worker DROP COLUMN slots', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
