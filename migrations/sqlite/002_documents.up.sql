-- Documents, their versions, segments and files (contract §3, design D8, D10, D13).

-- A named collection of one user's documents; its id names the vector collection.
CREATE TABLE knowledge_base (
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL, -- unique among the live bases of its user
    live_name TEXT, -- the name while it lives, NULL after its deletion: the key of uniqueness
    model_key TEXT NOT NULL DEFAULT '', -- the model of its vectors; empty until the first document is embedded
    dim INTEGER NOT NULL DEFAULT 0, -- 0: not known yet
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    deleted_at TEXT, -- tombstone
    sweep_at TEXT NOT NULL DEFAULT '9999-12-31 00:00:00.000000', -- when the sweeper must look at a deleted base; 9999-12-31: never
    sweep_pass INTEGER NOT NULL DEFAULT 0, -- times that its collection was dropped
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uq_base_name ON knowledge_base (user_id, live_name);
CREATE INDEX ix_base_list ON knowledge_base (user_id, created_at, id);
CREATE INDEX ix_base_sweep ON knowledge_base (sweep_at, id);

-- A file in the upload folder. Its path is the id of its row, never its hash, and no path is used twice (design D8).
CREATE TABLE stored_file (
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    original_name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    path TEXT NOT NULL, -- relative to the upload folder
    created_at TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_file_hash ON stored_file (user_id, sha256);

-- A document. status is READY whenever a version is visible, else after its last task (design D13).
CREATE TABLE knowledge_document (
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    base_id TEXT NOT NULL,
    title TEXT NOT NULL,
    file_name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    status TEXT NOT NULL,
    segment_count INTEGER NOT NULL DEFAULT 0, -- of the visible version
    pages INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL, -- of the newest upload
    content_sha256 TEXT NOT NULL, -- of the newest upload
    same_sha256 TEXT, -- content_sha256 while the document lives: the key of sameness; NULL on a tombstone
    visible_version_id TEXT, -- NULL: none
    visible_no INTEGER NOT NULL DEFAULT 0, -- 0: none
    visible_upload_no INTEGER NOT NULL DEFAULT 0,
    last_no INTEGER NOT NULL DEFAULT 0, -- of all its versions
    last_upload_no INTEGER NOT NULL DEFAULT 0, -- of all accepted uploads
    latest_task_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    deleted_at TEXT, -- tombstone; such a row is in no list, no search and nobody's duplicate
    sweep_at TEXT NOT NULL, -- when the sweeper must look; 9999-12-31: never
    sweep_pass INTEGER NOT NULL DEFAULT 0, -- passes of the deletion done
    PRIMARY KEY (id),
    CONSTRAINT ck_knowledge_document_status CHECK (status IN ('QUEUED','PROCESSING','READY','FAILED'))
);
CREATE UNIQUE INDEX uq_document_same ON knowledge_document (base_id, same_sha256);
CREATE INDEX ix_document_list ON knowledge_document (user_id, updated_at, id);
CREATE INDEX ix_document_base ON knowledge_document (base_id, updated_at, id);
CREATE INDEX ix_document_sweep ON knowledge_document (sweep_at, id);

-- One take of a document. BUILDING → VISIBLE → SUPERSEDED, or ABANDONED; both last ones are final (design D8).
CREATE TABLE document_version (
    id TEXT NOT NULL,
    document_id TEXT NOT NULL,
    base_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    file_id TEXT NOT NULL,
    no INTEGER NOT NULL, -- rises within the document
    upload_no INTEGER NOT NULL, -- of the accepted upload whose bytes it holds
    state TEXT NOT NULL,
    model_key TEXT NOT NULL DEFAULT '', -- snapshot at its first run
    dim INTEGER NOT NULL DEFAULT 0,
    extractor TEXT NOT NULL DEFAULT '',
    splitter TEXT NOT NULL DEFAULT '',
    title TEXT NOT NULL,
    segment_count INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    closed_at TEXT, -- when it became SUPERSEDED or ABANDONED
    sweep_at TEXT NOT NULL, -- when the sweeper must look at its rows; 9999-12-31: never
    sweep_pass INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    CONSTRAINT ck_document_version_state CHECK (state IN ('BUILDING','VISIBLE','SUPERSEDED','ABANDONED'))
);
CREATE UNIQUE INDEX uq_version_no ON document_version (document_id, no);
CREATE INDEX ix_version_task ON document_version (task_id, state);
CREATE INDEX ix_version_file ON document_version (file_id);
CREATE INDEX ix_version_sweep ON document_version (sweep_at, id);

-- A piece of a version's text with its place. A row says nothing about its vector; stored is a mark set under the holder's predicate.
CREATE TABLE knowledge_segment (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document_id TEXT NOT NULL,
    version_id TEXT NOT NULL,
    version INTEGER NOT NULL, -- the version's no
    segment_index INTEGER NOT NULL, -- from 0, without gaps
    content TEXT NOT NULL,
    text_hash TEXT NOT NULL, -- sha256 of content: the key of the embedding ledger
    vector_id TEXT NOT NULL, -- hash(birth version, text hash, occurrence)
    birth_version_id TEXT NOT NULL, -- the version that wrote the vector
    page INTEGER NOT NULL DEFAULT 0, -- 1-based; 0: none
    heading_path TEXT NOT NULL, -- JSON array, outermost first
    byte_start INTEGER NOT NULL,
    byte_end INTEGER NOT NULL,
    tokens INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0 -- 1: its vector was written by the holder
);
CREATE UNIQUE INDEX uq_segment_index ON knowledge_segment (version_id, segment_index);
CREATE INDEX ix_segment_vector ON knowledge_segment (vector_id);
CREATE INDEX ix_segment_document ON knowledge_segment (document_id, version_id);

-- Vector ids that SQL must still name until they were deleted twice (design D8).
CREATE TABLE vector_garbage (
    vector_id TEXT NOT NULL,
    base_id TEXT NOT NULL,
    document_id TEXT NOT NULL,
    birth_version_id TEXT NOT NULL,
    marked_at TEXT, -- NULL: named by a run that dropped the row; set: decided to be deleted
    sweep_at TEXT NOT NULL,
    sweep_pass INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (vector_id)
);
CREATE INDEX ix_garbage_sweep ON vector_garbage (sweep_at, vector_id);
CREATE INDEX ix_garbage_birth ON vector_garbage (birth_version_id);

-- Embeddings that were paid for, by content (design D10); swept 24 h after their last use.
CREATE TABLE embedding_ledger (
    model_key TEXT NOT NULL,
    text_hash TEXT NOT NULL,
    dim INTEGER NOT NULL,
    vector BLOB NOT NULL, -- float32, little endian
    used_at TEXT NOT NULL,
    PRIMARY KEY (model_key, text_hash)
);
CREATE INDEX ix_ledger_used ON embedding_ledger (used_at);

-- Idempotency keys of requests that are still being received; a row is a lease.
CREATE TABLE upload_request (
    user_id TEXT NOT NULL,
    request_key TEXT NOT NULL,
    request_id TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    PRIMARY KEY (user_id, request_key)
);
