-- How the documents of a knowledge base are cut, in JSON; NULL: as the operator says (CHUNK_*). And of a segment: the first and the
-- last index of those whose text a hit shows around it; NULL: none. No row is rewritten.

ALTER TABLE knowledge_base ADD COLUMN chunking VARCHAR(500) NULL;
ALTER TABLE knowledge_segment ADD COLUMN around_from INT NULL, ADD COLUMN around_to INT NULL;
