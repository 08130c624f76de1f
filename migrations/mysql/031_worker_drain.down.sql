SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'ingest_worker' AND column_name = 'drain_at');
SET @step = IF(@there, 'ALTER TABLE ingest_worker DROP COLUMN drain_at', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'ingest_worker' AND column_name = 'drained_at');
SET @step = IF(@there, 'ALTER TABLE ingest_worker DROP COLUMN drained_at', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
