DROP INDEX ix_document_media;
DROP INDEX ix_document_created;
