-- A session of the console is a key of its own kind, made from another one (design D27).
ALTER TABLE api_key ADD COLUMN parent_id TEXT NULL; -- the key that it was made from; NULL: not a session
CREATE INDEX ix_api_key_parent ON api_key (parent_id, expires_at);
