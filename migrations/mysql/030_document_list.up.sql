-- Operators list the documents of all users, and the documents of a base are counted without a look at their rows.

-- CREATE INDEX knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_updated');
SET @step = IF(@missing, 'CREATE INDEX ix_document_updated ON knowledge_document (updated_at, id)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_count');
SET @step = IF(@missing, 'CREATE INDEX ix_document_count ON knowledge_document (base_id, deleted_at, status, segment_count)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
