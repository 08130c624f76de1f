DROP TABLE knowledge_text_chunk;
DROP TABLE knowledge_text_part;
