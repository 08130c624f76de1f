-- The audit log (assurance 4.1) and the scopes of API keys.
-- Rows are added and read, never changed: an installation gives its services INSERT and SELECT on audit_event and nothing else.

CREATE TABLE audit_event (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    created_at TIMESTAMPTZ NOT NULL,
    action VARCHAR(40) NOT NULL, -- login_failed, access_denied, key_create …
    actor VARCHAR(190) NOT NULL, -- user id; empty: nobody proved who he is
    role VARCHAR(20) NOT NULL, -- of the actor; empty with him
    key_id VARCHAR(64) NOT NULL, -- the API key used; empty: none
    ip VARCHAR(64) NOT NULL, -- address or network of the caller; empty: the command line
    request_id VARCHAR(128) NOT NULL,
    target VARCHAR(190) NOT NULL, -- task, document, base, key or route
    detail VARCHAR(500) NOT NULL,
    times INTEGER NOT NULL, -- how often, when several of a kind were put together
    PRIMARY KEY (id)
);
CREATE INDEX ix_audit_action ON audit_event (action, id);
ALTER TABLE api_key ADD COLUMN scopes VARCHAR(64) NOT NULL DEFAULT 'read,write';
