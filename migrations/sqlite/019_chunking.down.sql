ALTER TABLE knowledge_segment DROP COLUMN around_to;
ALTER TABLE knowledge_segment DROP COLUMN around_from;
ALTER TABLE knowledge_base DROP COLUMN chunking;
