-- The knowledge bases that an API key is limited to: ids with blanks between them; NULL: all of its user.
ALTER TABLE api_key ADD COLUMN bases TEXT NULL;
