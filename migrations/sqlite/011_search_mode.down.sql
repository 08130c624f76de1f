ALTER TABLE knowledge_base DROP COLUMN search_mode;
