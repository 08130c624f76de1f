-- A session of the console is a key of its own kind, made from another one (design D27).

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'api_key' AND column_name = 'parent_id');
SET @step = IF(@missing, 'ALTER TABLE api_key
    ADD COLUMN parent_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL, ADD KEY ix_api_key_parent (parent_id, expires_at)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
