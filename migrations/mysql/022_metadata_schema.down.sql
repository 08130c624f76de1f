SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_base' AND column_name = 'metadata_schema');
SET @step = IF(@there, 'ALTER TABLE knowledge_base DROP COLUMN metadata_schema', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
