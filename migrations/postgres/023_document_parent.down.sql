DROP INDEX IF EXISTS ix_document_parent;
ALTER TABLE knowledge_document DROP COLUMN IF EXISTS parent_no;
ALTER TABLE knowledge_document DROP COLUMN IF EXISTS parent_id;
