CREATE INDEX ix_document_count ON knowledge_document (base_id, deleted_at, status, segment_count);
DROP TABLE document_count_change;
DROP TABLE document_count;
