DROP INDEX IF EXISTS ix_document_updated;
DROP INDEX IF EXISTS ix_document_count;
