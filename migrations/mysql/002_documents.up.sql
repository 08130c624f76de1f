-- Documents, their versions, segments and files (contract §3, design D8, D10, D13).

-- A named collection of one user's documents; its id names the vector collection.
CREATE TABLE IF NOT EXISTS knowledge_base (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id VARCHAR(190) NOT NULL,
    name VARCHAR(190) NOT NULL, -- unique among the live bases of its user
    live_name VARCHAR(190), -- the name while it lives, NULL after its deletion: the key of uniqueness
    model_key VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- the model of its vectors; empty until the first document is embedded
    dim INT NOT NULL DEFAULT 0, -- 0: not known yet
    created_at DATETIME(6) NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    deleted_at DATETIME(6), -- tombstone
    sweep_at DATETIME(6) NOT NULL DEFAULT '9999-12-31 00:00:00.000000', -- when the sweeper must look at a deleted base; 9999-12-31: never
    sweep_pass INT NOT NULL DEFAULT 0, -- times that its collection was dropped
    PRIMARY KEY (id),
    UNIQUE KEY uq_base_name (user_id, live_name),
    KEY ix_base_list (user_id, created_at, id),
    KEY ix_base_sweep (sweep_at, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A file in the upload folder. Its path is the id of its row, never its hash, and no path is used twice (design D8).
CREATE TABLE IF NOT EXISTS stored_file (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id VARCHAR(190) NOT NULL,
    sha256 CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    bytes BIGINT NOT NULL,
    original_name VARCHAR(500) NOT NULL,
    media_type VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    path VARCHAR(255) NOT NULL, -- relative to the upload folder
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (id),
    KEY ix_file_hash (user_id, sha256)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A document. status is READY whenever a version is visible, else after its last task (design D13).
CREATE TABLE IF NOT EXISTS knowledge_document (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id VARCHAR(190) NOT NULL,
    base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    title VARCHAR(500) NOT NULL,
    file_name VARCHAR(500) NOT NULL,
    media_type VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    status ENUM('QUEUED','PROCESSING','READY','FAILED') NOT NULL,
    segment_count INT NOT NULL DEFAULT 0, -- of the visible version
    pages INT NOT NULL DEFAULT 0,
    bytes BIGINT NOT NULL, -- of the newest upload
    content_sha256 CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- of the newest upload
    same_sha256 CHAR(64) CHARACTER SET ascii COLLATE ascii_bin, -- content_sha256 while the document lives: the key of sameness; NULL on a tombstone
    visible_version_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, -- NULL: none
    visible_no BIGINT NOT NULL DEFAULT 0, -- 0: none
    visible_upload_no BIGINT NOT NULL DEFAULT 0,
    last_no BIGINT NOT NULL DEFAULT 0, -- of all its versions
    last_upload_no BIGINT NOT NULL DEFAULT 0, -- of all accepted uploads
    latest_task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at DATETIME(6) NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    deleted_at DATETIME(6), -- tombstone; such a row is in no list, no search and nobody's duplicate
    sweep_at DATETIME(6) NOT NULL, -- when the sweeper must look; 9999-12-31: never
    sweep_pass INT NOT NULL DEFAULT 0, -- passes of the deletion done
    PRIMARY KEY (id),
    UNIQUE KEY uq_document_same (base_id, same_sha256),
    KEY ix_document_list (user_id, updated_at, id),
    KEY ix_document_base (base_id, updated_at, id),
    KEY ix_document_sweep (sweep_at, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One take of a document. BUILDING → VISIBLE → SUPERSEDED, or ABANDONED; both last ones are final (design D8).
CREATE TABLE IF NOT EXISTS document_version (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    file_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    no BIGINT NOT NULL, -- rises within the document
    upload_no BIGINT NOT NULL, -- of the accepted upload whose bytes it holds
    state ENUM('BUILDING','VISIBLE','SUPERSEDED','ABANDONED') NOT NULL,
    model_key VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- snapshot at its first run
    dim INT NOT NULL DEFAULT 0,
    extractor VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    splitter VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    title VARCHAR(500) NOT NULL,
    segment_count INT NOT NULL DEFAULT 0,
    pages INT NOT NULL DEFAULT 0,
    created_at DATETIME(6) NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    closed_at DATETIME(6), -- when it became SUPERSEDED or ABANDONED
    sweep_at DATETIME(6) NOT NULL, -- when the sweeper must look at its rows; 9999-12-31: never
    sweep_pass INT NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    UNIQUE KEY uq_version_no (document_id, no),
    KEY ix_version_task (task_id, state),
    KEY ix_version_file (file_id),
    KEY ix_version_sweep (sweep_at, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A piece of a version's text with its place. A row says nothing about its vector; stored is a mark set under the holder's predicate.
CREATE TABLE IF NOT EXISTS knowledge_segment (
    id BIGINT NOT NULL AUTO_INCREMENT,
    document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version BIGINT NOT NULL, -- the version's no
    segment_index INT NOT NULL, -- from 0, without gaps
    content MEDIUMTEXT NOT NULL,
    text_hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- sha256 of content: the key of the embedding ledger
    vector_id CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- hash(birth version, text hash, occurrence)
    birth_version_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- the version that wrote the vector
    page INT NOT NULL DEFAULT 0, -- 1-based; 0: none
    heading_path TEXT NOT NULL, -- JSON array, outermost first
    byte_start BIGINT NOT NULL,
    byte_end BIGINT NOT NULL,
    tokens INT NOT NULL DEFAULT 0,
    `stored` TINYINT NOT NULL DEFAULT 0, -- 1: its vector was written by the holder
    PRIMARY KEY (id),
    UNIQUE KEY uq_segment_index (version_id, segment_index),
    KEY ix_segment_vector (vector_id),
    KEY ix_segment_document (document_id, version_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Vector ids that SQL must still name until they were deleted twice (design D8).
CREATE TABLE IF NOT EXISTS vector_garbage (
    vector_id CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    birth_version_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    marked_at DATETIME(6), -- NULL: named by a run that dropped the row; set: decided to be deleted
    sweep_at DATETIME(6) NOT NULL,
    sweep_pass INT NOT NULL DEFAULT 0,
    PRIMARY KEY (vector_id),
    KEY ix_garbage_sweep (sweep_at, vector_id),
    KEY ix_garbage_birth (birth_version_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Embeddings that were paid for, by content (design D10); swept 24 h after their last use.
CREATE TABLE IF NOT EXISTS embedding_ledger (
    model_key VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    text_hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    dim INT NOT NULL,
    `vector` MEDIUMBLOB NOT NULL, -- float32, little endian
    used_at DATETIME(6) NOT NULL,
    PRIMARY KEY (model_key, text_hash),
    KEY ix_ledger_used (used_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Idempotency keys of requests that are still being received; a row is a lease.
CREATE TABLE IF NOT EXISTS upload_request (
    user_id VARCHAR(190) NOT NULL,
    request_key VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    request_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    PRIMARY KEY (user_id, request_key)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
