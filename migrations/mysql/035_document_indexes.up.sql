-- Searches that filter by media type find their documents by an index, and lists by creation or of a status their page.

-- CREATE INDEX knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_media');
SET @step = IF(@missing, 'CREATE INDEX ix_document_media ON knowledge_document (base_id, media_type, visible_version_id)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_created');
SET @step = IF(@missing, 'CREATE INDEX ix_document_created ON knowledge_document (created_at, id)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_status');
SET @step = IF(@missing, 'CREATE INDEX ix_document_status ON knowledge_document (status, updated_at, id)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
