-- Where other pages begin inside of a segment's text. No row is rewritten: NULL says that it is not known.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_segment' AND column_name = 'page_breaks');
SET @step = IF(@missing, 'ALTER TABLE knowledge_segment ADD COLUMN page_breaks MEDIUMTEXT NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
