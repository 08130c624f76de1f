-- A receipt for each deleted document: what was removed, and when that was looked at. A row outlives its document.
CREATE TABLE document_deletion (
    document_id CHAR(36) NOT NULL,
    user_id VARCHAR(190) NOT NULL,
    base_id CHAR(36) NOT NULL,
    content_sha256 CHAR(64) NOT NULL, -- of the newest upload
    bytes BIGINT NOT NULL, -- of the newest upload
    versions BIGINT NOT NULL,
    segments BIGINT NOT NULL, -- rows that were removed
    vectors BIGINT NOT NULL, -- that were deleted twice, and that the store then said it does not hold
    files TEXT NOT NULL, -- ids of the stored files that were removed, with blanks between them
    deleted_by VARCHAR(255) NOT NULL, -- kind:name
    deleted_at TIMESTAMPTZ NOT NULL,
    removed_at TIMESTAMPTZ NULL, -- when rows, vectors and files were gone
    verified_at TIMESTAMPTZ NULL, -- when its words and the embeddings of its texts were gone too
    sweep_at TIMESTAMPTZ NOT NULL, -- when that must be looked at; 9999-12-31: never
    PRIMARY KEY (document_id)
);
CREATE INDEX ix_deletion_sweep ON document_deletion (sweep_at, document_id);
CREATE INDEX ix_deletion_base ON document_deletion (base_id, verified_at);
