-- A receipt for each deleted document: what was removed, and when that was looked at. A row outlives its document.
CREATE TABLE document_deletion (
    document_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    base_id TEXT NOT NULL,
    content_sha256 TEXT NOT NULL, -- of the newest upload
    bytes INTEGER NOT NULL, -- of the newest upload
    versions INTEGER NOT NULL,
    segments INTEGER NOT NULL, -- rows that were removed
    vectors INTEGER NOT NULL, -- that were deleted twice, and that the store then said it does not hold
    files TEXT NOT NULL, -- ids of the stored files that were removed, with blanks between them
    deleted_by TEXT NOT NULL, -- kind:name
    deleted_at TEXT NOT NULL,
    removed_at TEXT NULL, -- when rows, vectors and files were gone
    verified_at TEXT NULL, -- when its words and the embeddings of its texts were gone too
    sweep_at TEXT NOT NULL, -- when that must be looked at; 9999-12-31: never
    PRIMARY KEY (document_id)
);
CREATE INDEX ix_deletion_sweep ON document_deletion (sweep_at, document_id);
CREATE INDEX ix_deletion_base ON document_deletion (base_id, verified_at);
