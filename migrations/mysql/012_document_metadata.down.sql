DROP TABLE IF EXISTS document_metadata;

SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'document_version' AND column_name = 'metadata');
SET @step = IF(@there, 'ALTER TABLE document_version DROP COLUMN metadata', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND column_name = 'metadata');
SET @step = IF(@there, 'ALTER TABLE knowledge_document DROP COLUMN metadata', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
