-- A receipt for each deleted document: what was removed, and when that was looked at. A row outlives its document.
CREATE TABLE IF NOT EXISTS document_deletion (
    document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
    base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    content_sha256 CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- of the newest upload
    bytes BIGINT NOT NULL, -- of the newest upload
    versions BIGINT NOT NULL,
    segments BIGINT NOT NULL, -- rows that were removed
    vectors BIGINT NOT NULL, -- that were deleted twice, and that the store then said it does not hold
    files TEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- ids of the stored files that were removed, with blanks between them
    deleted_by VARCHAR(255) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL, -- kind:name
    deleted_at DATETIME(6) NOT NULL,
    removed_at DATETIME(6) NULL, -- when rows, vectors and files were gone
    verified_at DATETIME(6) NULL, -- when its words and the embeddings of its texts were gone too
    sweep_at DATETIME(6) NOT NULL, -- when that must be looked at; 9999-12-31: never
    PRIMARY KEY (document_id),
    KEY ix_deletion_sweep (sweep_at, document_id),
    KEY ix_deletion_base (base_id, verified_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
