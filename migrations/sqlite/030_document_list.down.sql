DROP INDEX ix_document_updated;
DROP INDEX ix_document_count;
