SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_segment' AND column_name = 'page_breaks');
SET @step = IF(@there, 'ALTER TABLE knowledge_segment DROP COLUMN page_breaks', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
