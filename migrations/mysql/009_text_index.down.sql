DROP TABLE IF EXISTS knowledge_text_chunk;
DROP TABLE IF EXISTS knowledge_text_part;
