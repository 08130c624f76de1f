-- The full-text index of knowledge bases: immutable parts, whose bytes are cut into chunks of 64 KiB (design D24).
CREATE TABLE knowledge_text_part (
    id TEXT NOT NULL, -- a UUIDv7: it rises with time
    base_id TEXT NOT NULL,
    segments INTEGER NOT NULL, -- of all versions, visible or not
    tokens INTEGER NOT NULL, -- words of their texts
    bytes INTEGER NOT NULL,
    busy_until TEXT NOT NULL, -- until then a process merges it with others
    created_at TEXT NOT NULL,
    head BLOB NOT NULL, -- the first chunk: small parts are one row
    PRIMARY KEY (id)
);
CREATE INDEX ix_text_part_base ON knowledge_text_part (base_id, id);

CREATE TABLE knowledge_text_chunk (
    part_id TEXT NOT NULL,
    seq INTEGER NOT NULL, -- from 1: the first is in the part's row
    data BLOB NOT NULL,
    PRIMARY KEY (part_id, seq)
);
