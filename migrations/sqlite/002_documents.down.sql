DROP TABLE IF EXISTS upload_request;
DROP TABLE IF EXISTS embedding_ledger;
DROP TABLE IF EXISTS vector_garbage;
DROP TABLE IF EXISTS knowledge_segment;
DROP TABLE IF EXISTS document_version;
DROP TABLE IF EXISTS knowledge_document;
DROP TABLE IF EXISTS stored_file;
DROP TABLE IF EXISTS knowledge_base;
