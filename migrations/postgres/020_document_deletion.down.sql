DROP TABLE IF EXISTS document_deletion;
