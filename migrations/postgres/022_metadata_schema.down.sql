ALTER TABLE knowledge_base DROP COLUMN IF EXISTS metadata_schema;
