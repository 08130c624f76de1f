-- What users say of their documents: a flat JSON object, and a row for each of its keys by which searches filter.
-- No row is rewritten: NULL says that nothing was said. A document's is that of the visible version; before there is one, of the
-- newest upload.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND column_name = 'metadata');
SET @step = IF(@missing, 'ALTER TABLE knowledge_document ADD COLUMN metadata TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'document_version' AND column_name = 'metadata');
SET @step = IF(@missing, 'ALTER TABLE document_version ADD COLUMN metadata TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

CREATE TABLE IF NOT EXISTS document_metadata (
    version_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    value VARBINARY(2049) NOT NULL, -- its kind (s, n, b), then a text in UTF-8 that orders as the value does
    document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (version_id, name),
    KEY ix_metadata_value (base_id, name, value, document_id, version_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
