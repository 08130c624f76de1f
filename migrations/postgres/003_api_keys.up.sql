-- API keys (contract §4, assurance 4.1). The secret is not here: digest is its SHA-256, shown its first 12 characters.

CREATE TABLE api_key (
    id CHAR(36) NOT NULL,
    user_id VARCHAR(190) NOT NULL, -- whose rows the key reaches
    name VARCHAR(190) NOT NULL, -- for people; may be empty
    role TEXT NOT NULL,
    digest CHAR(64) NOT NULL, -- SHA-256 of the key, hex
    shown CHAR(12) NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ, -- NULL: never
    revoked_at TIMESTAMPTZ, -- NULL: not revoked
    last_used_at TIMESTAMPTZ, -- to the minute; NULL: never
    PRIMARY KEY (id),
    CHECK (role IN ('user', 'operator'))
);
CREATE UNIQUE INDEX uq_api_key_digest ON api_key (digest);
CREATE INDEX ix_api_key_list ON api_key (created_at, id);
