CREATE INDEX IF NOT EXISTS ix_document_count ON knowledge_document (base_id, deleted_at, status, segment_count);
DROP TABLE IF EXISTS document_count_change;
DROP TABLE IF EXISTS document_count;
