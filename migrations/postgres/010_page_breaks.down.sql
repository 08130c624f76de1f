ALTER TABLE knowledge_segment DROP COLUMN IF EXISTS page_breaks;
