-- The rows of sessions go with the column: they are no keys.
SET @there = (SELECT COUNT(*) FROM information_schema.columns
               WHERE table_schema = DATABASE() AND table_name = 'api_key' AND column_name = 'parent_id');
SET @step = IF(@there, 'DELETE FROM api_key WHERE parent_id IS NOT NULL', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
-- COPY: a column that is dropped in an instant stays a part of the row, which has a limit.
SET @step = IF(@there, 'ALTER TABLE api_key DROP KEY ix_api_key_parent, DROP COLUMN parent_id, ALGORITHM = COPY', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
