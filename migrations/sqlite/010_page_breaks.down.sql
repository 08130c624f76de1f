ALTER TABLE knowledge_segment DROP COLUMN page_breaks;
