SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'api_key' AND column_name = 'bases');
SET @step = IF(@there, 'ALTER TABLE api_key DROP COLUMN bases', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
