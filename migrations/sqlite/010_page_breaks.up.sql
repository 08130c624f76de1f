-- Where other pages begin inside of a segment's text. No row is rewritten: NULL says that it is not known.

ALTER TABLE knowledge_segment ADD COLUMN page_breaks TEXT NULL;
