-- Which metadata the documents of a knowledge base may have, in JSON; NULL: any. No row is rewritten.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_base' AND column_name = 'metadata_schema');
SET @step = IF(@missing, 'ALTER TABLE knowledge_base ADD COLUMN metadata_schema TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
