-- An attachment of a message is a document of its own: parent_id is the message's document, parent_no the newest version of it that has
-- the attachment. NULL and 0: it is no attachment.
ALTER TABLE knowledge_document ADD COLUMN parent_id CHAR(36) NULL;
ALTER TABLE knowledge_document ADD COLUMN parent_no BIGINT NOT NULL DEFAULT 0;
CREATE INDEX ix_document_parent ON knowledge_document (parent_id, id);
