DROP INDEX ix_document_media;
DROP INDEX ix_document_created;
DROP INDEX ix_document_status;
