SET @there = (SELECT COUNT(*) FROM information_schema.statistics
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_media');
SET @step = IF(@there, 'DROP INDEX ix_document_media ON knowledge_document', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @there = (SELECT COUNT(*) FROM information_schema.statistics
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_created');
SET @step = IF(@there, 'DROP INDEX ix_document_created ON knowledge_document', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @there = (SELECT COUNT(*) FROM information_schema.statistics
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_status');
SET @step = IF(@there, 'DROP INDEX ix_document_status ON knowledge_document', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
