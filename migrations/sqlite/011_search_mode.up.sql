-- What a search of the base looks into when it does not say: auto, text, vector, hybrid.

ALTER TABLE knowledge_base ADD COLUMN search_mode TEXT NOT NULL DEFAULT 'auto';
