SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_count');
SET @step = IF(@missing, 'CREATE INDEX ix_document_count ON knowledge_document (base_id, deleted_at, status, segment_count)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
DROP TABLE IF EXISTS document_count_change;
DROP TABLE IF EXISTS document_count;
