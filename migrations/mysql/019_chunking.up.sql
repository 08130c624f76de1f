-- How the documents of a knowledge base are cut, in JSON; NULL: as the operator says (CHUNK_*). And of a segment: the first and the
-- last index of those whose text a hit shows around it; NULL: none. No row is rewritten.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_base' AND column_name = 'chunking');
SET @step = IF(@missing, 'ALTER TABLE knowledge_base ADD COLUMN chunking VARCHAR(500) CHARACTER SET ascii COLLATE ascii_bin NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_segment' AND column_name = 'around_from');
SET @step = IF(@missing, 'ALTER TABLE knowledge_segment ADD COLUMN around_from INT NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_segment' AND column_name = 'around_to');
SET @step = IF(@missing, 'ALTER TABLE knowledge_segment ADD COLUMN around_to INT NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
