ALTER TABLE knowledge_segment DROP COLUMN IF EXISTS around_to, DROP COLUMN IF EXISTS around_from;
ALTER TABLE knowledge_base DROP COLUMN IF EXISTS chunking;
