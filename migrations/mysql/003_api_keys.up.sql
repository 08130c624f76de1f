-- API keys (contract §4, assurance 4.1). The secret is not here: digest is its SHA-256, shown its first 12 characters.

CREATE TABLE IF NOT EXISTS api_key (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id VARCHAR(190) NOT NULL, -- whose rows the key reaches
    name VARCHAR(190) NOT NULL, -- for people; may be empty
    role ENUM('user','operator') NOT NULL,
    digest CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- SHA-256 of the key, hex
    shown CHAR(12) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6), -- NULL: never
    revoked_at DATETIME(6), -- NULL: not revoked
    last_used_at DATETIME(6), -- to the minute; NULL: never
    PRIMARY KEY (id),
    UNIQUE KEY uq_api_key_digest (digest),
    KEY ix_api_key_list (created_at, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
