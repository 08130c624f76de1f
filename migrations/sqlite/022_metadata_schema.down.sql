ALTER TABLE knowledge_base DROP COLUMN metadata_schema;
