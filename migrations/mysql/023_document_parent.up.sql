-- An attachment of a message is a document of its own: parent_id is the message's document, parent_no the newest version of it that has
-- the attachment. NULL and 0: it is no attachment.

-- ADD COLUMN and CREATE INDEX know no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND column_name = 'parent_id');
SET @step = IF(@missing, 'ALTER TABLE knowledge_document ADD COLUMN parent_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL, ADD COLUMN parent_no BIGINT NOT NULL DEFAULT 0, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_parent');
SET @step = IF(@missing, 'CREATE INDEX ix_document_parent ON knowledge_document (parent_id, id)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
