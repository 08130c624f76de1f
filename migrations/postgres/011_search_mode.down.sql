ALTER TABLE knowledge_base DROP COLUMN IF EXISTS search_mode;
