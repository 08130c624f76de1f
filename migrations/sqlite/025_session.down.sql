-- The rows of sessions go with the column: they are no keys.
DELETE FROM api_key WHERE parent_id IS NOT NULL;
DROP INDEX ix_api_key_parent;
ALTER TABLE api_key DROP COLUMN parent_id;
