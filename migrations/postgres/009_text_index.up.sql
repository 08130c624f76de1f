-- The full-text index of knowledge bases: immutable parts, whose bytes are cut into chunks of 64 KiB (design D24).
CREATE TABLE knowledge_text_part (
    id CHAR(36) NOT NULL, -- a UUIDv7: it rises with time
    base_id CHAR(36) NOT NULL,
    segments INT NOT NULL, -- of all versions, visible or not
    tokens BIGINT NOT NULL, -- words of their texts
    bytes BIGINT NOT NULL,
    busy_until TIMESTAMPTZ NOT NULL, -- until then a process merges it with others
    created_at TIMESTAMPTZ NOT NULL,
    head BYTEA NOT NULL, -- the first chunk: small parts are one row
    PRIMARY KEY (id)
);
CREATE INDEX ix_text_part_base ON knowledge_text_part (base_id, id);

CREATE TABLE knowledge_text_chunk (
    part_id CHAR(36) NOT NULL,
    seq INT NOT NULL, -- from 1: the first is in the part's row
    data BYTEA NOT NULL,
    PRIMARY KEY (part_id, seq)
);
