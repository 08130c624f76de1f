DROP TABLE document_metadata;
ALTER TABLE document_version DROP COLUMN metadata;
ALTER TABLE knowledge_document DROP COLUMN metadata;
