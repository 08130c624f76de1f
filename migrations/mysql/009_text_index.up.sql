-- The full-text index of knowledge bases: immutable parts, whose bytes are cut into chunks of 64 KiB (design D24).
CREATE TABLE IF NOT EXISTS knowledge_text_part (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a UUIDv7: it rises with time
    base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    segments INT NOT NULL, -- of all versions, visible or not
    tokens BIGINT NOT NULL, -- words of their texts
    bytes BIGINT NOT NULL,
    busy_until DATETIME(6) NOT NULL, -- until then a process merges it with others
    created_at DATETIME(6) NOT NULL,
    head MEDIUMBLOB NOT NULL, -- the first chunk: small parts are one row
    PRIMARY KEY (id),
    KEY ix_text_part_base (base_id, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS knowledge_text_chunk (
    part_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seq INT NOT NULL, -- from 1: the first is in the part's row
    data MEDIUMBLOB NOT NULL,
    PRIMARY KEY (part_id, seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
