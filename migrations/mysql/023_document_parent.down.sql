SET @there = (SELECT COUNT(*) FROM information_schema.statistics
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_parent');
SET @step = IF(@there, 'DROP INDEX ix_document_parent ON knowledge_document', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND column_name = 'parent_id');
SET @step = IF(@there, 'ALTER TABLE knowledge_document DROP COLUMN parent_no, DROP COLUMN parent_id', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
