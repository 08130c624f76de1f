DROP INDEX IF EXISTS ix_document_media;
DROP INDEX IF EXISTS ix_document_created;
DROP INDEX IF EXISTS ix_document_status;
