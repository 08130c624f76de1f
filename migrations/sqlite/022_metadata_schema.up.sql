-- Which metadata the documents of a knowledge base may have, in JSON; NULL: any. No row is rewritten.
ALTER TABLE knowledge_base ADD COLUMN metadata_schema TEXT NULL;
