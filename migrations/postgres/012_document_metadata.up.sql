-- What users say of their documents: a flat JSON object, and a row for each of its keys by which searches filter.
-- No row is rewritten: NULL says that nothing was said.

ALTER TABLE knowledge_document ADD COLUMN metadata TEXT NULL; -- of the visible version; before there is one, of the newest upload
ALTER TABLE document_version ADD COLUMN metadata TEXT NULL;

CREATE TABLE document_metadata (
    version_id CHAR(36) NOT NULL,
    name VARCHAR(64) NOT NULL,
    value VARCHAR(513) COLLATE "C" NOT NULL, -- its kind (s, n, b), then a text that orders as the value does
    document_id CHAR(36) NOT NULL,
    base_id CHAR(36) NOT NULL,
    PRIMARY KEY (version_id, name)
);
CREATE INDEX ix_metadata_value ON document_metadata (base_id, name, value, document_id, version_id);
