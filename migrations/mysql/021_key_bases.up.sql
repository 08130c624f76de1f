-- The knowledge bases that an API key is limited to: ids with blanks between them; NULL: all of its user.

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'api_key' AND column_name = 'bases');
SET @step = IF(@missing, 'ALTER TABLE api_key ADD COLUMN bases TEXT CHARACTER SET ascii COLLATE ascii_bin NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
