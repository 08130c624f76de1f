SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_segment' AND column_name = 'around_to');
SET @step = IF(@there, 'ALTER TABLE knowledge_segment DROP COLUMN around_to', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_segment' AND column_name = 'around_from');
SET @step = IF(@there, 'ALTER TABLE knowledge_segment DROP COLUMN around_from', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_base' AND column_name = 'chunking');
SET @step = IF(@there, 'ALTER TABLE knowledge_base DROP COLUMN chunking', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
