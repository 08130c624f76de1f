DROP INDEX ix_document_parent;
ALTER TABLE knowledge_document DROP COLUMN parent_no;
ALTER TABLE knowledge_document DROP COLUMN parent_id;
