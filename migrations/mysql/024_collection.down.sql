-- COPY: a column that is dropped in an instant stays a part of the row, which has a limit.
DROP TABLE IF EXISTS retired_collection;
SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'document_version' AND column_name = 'collection');
SET @step = IF(@there, 'ALTER TABLE document_version DROP COLUMN collection, ALGORITHM = COPY', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_base' AND column_name = 'collection');
SET @step = IF(@there, 'ALTER TABLE knowledge_base DROP COLUMN collection, DROP COLUMN shadow, DROP COLUMN shadow_model,
    DROP COLUMN shadow_dim, DROP COLUMN closing_until, ALGORITHM = COPY', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
