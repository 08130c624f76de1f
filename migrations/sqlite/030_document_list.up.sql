-- Operators list the documents of all users, and the documents of a base are counted without a look at their rows.
CREATE INDEX ix_document_updated ON knowledge_document (updated_at, id);
CREATE INDEX ix_document_count ON knowledge_document (base_id, deleted_at, status, segment_count);
