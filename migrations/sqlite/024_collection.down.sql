DROP TABLE retired_collection;
ALTER TABLE document_version DROP COLUMN collection;
ALTER TABLE knowledge_base DROP COLUMN closing_until;
ALTER TABLE knowledge_base DROP COLUMN shadow_dim;
ALTER TABLE knowledge_base DROP COLUMN shadow_model;
ALTER TABLE knowledge_base DROP COLUMN shadow;
ALTER TABLE knowledge_base DROP COLUMN collection;
