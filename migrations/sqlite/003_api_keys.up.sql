-- API keys (contract §4, assurance 4.1). The secret is not here: digest is its SHA-256, shown its first 12 characters.

CREATE TABLE api_key (
    id TEXT NOT NULL,
    user_id TEXT NOT NULL, -- whose rows the key reaches
    name TEXT NOT NULL, -- for people; may be empty
    role TEXT NOT NULL,
    digest TEXT NOT NULL, -- SHA-256 of the key, hex
    shown TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT, -- NULL: never
    revoked_at TEXT, -- NULL: not revoked
    last_used_at TEXT, -- to the minute; NULL: never
    PRIMARY KEY (id),
    CHECK (role IN ('user', 'operator'))
);
CREATE UNIQUE INDEX uq_api_key_digest ON api_key (digest);
CREATE INDEX ix_api_key_list ON api_key (created_at, id);
