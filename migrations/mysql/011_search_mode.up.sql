-- What a search of the base looks into when it does not say: auto, text, vector, hybrid.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_base' AND column_name = 'search_mode');
SET @step = IF(@missing, 'ALTER TABLE knowledge_base ADD COLUMN search_mode VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''auto''', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
