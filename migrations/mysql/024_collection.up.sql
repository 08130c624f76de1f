-- Where the vectors of a knowledge base lie, and where they are made anew with another model (design D26).

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'knowledge_base' AND column_name = 'collection');
SET @step = IF(@missing, 'ALTER TABLE knowledge_base
    ADD COLUMN collection CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
    ADD COLUMN shadow CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
    ADD COLUMN shadow_model VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
    ADD COLUMN shadow_dim INT NOT NULL DEFAULT 0,
    ADD COLUMN closing_until DATETIME(6) NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'document_version' AND column_name = 'collection');
SET @step = IF(@missing, 'ALTER TABLE document_version
    ADD COLUMN collection CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''', ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

-- Collections that no base uses any more; the sweeper drops each twice.
CREATE TABLE IF NOT EXISTS retired_collection (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    sweep_at DATETIME(6) NOT NULL,
    sweep_pass INT NOT NULL DEFAULT 0, -- times that it was dropped
    PRIMARY KEY (id),
    KEY ix_retired_sweep (sweep_at, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
