DROP TABLE IF EXISTS document_metadata;
ALTER TABLE document_version DROP COLUMN IF EXISTS metadata;
ALTER TABLE knowledge_document DROP COLUMN IF EXISTS metadata;
