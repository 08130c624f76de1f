-- The audit log (assurance 4.1) and the scopes of API keys. Rows are added and read, never changed.

CREATE TABLE audit_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at TEXT NOT NULL,
    action TEXT NOT NULL, -- login_failed, access_denied, key_create …
    actor TEXT NOT NULL, -- user id; empty: nobody proved who he is
    role TEXT NOT NULL, -- of the actor; empty with him
    key_id TEXT NOT NULL, -- the API key used; empty: none
    ip TEXT NOT NULL, -- address or network of the caller; empty: the command line
    request_id TEXT NOT NULL,
    target TEXT NOT NULL, -- task, document, base, key or route
    detail TEXT NOT NULL,
    times INTEGER NOT NULL -- how often, when several of a kind were put together
);
CREATE INDEX ix_audit_action ON audit_event (action, id);
ALTER TABLE api_key ADD COLUMN scopes TEXT NOT NULL DEFAULT 'read,write';
