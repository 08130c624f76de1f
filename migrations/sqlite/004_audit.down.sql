DROP TABLE IF EXISTS audit_event;
ALTER TABLE api_key DROP COLUMN scopes;
