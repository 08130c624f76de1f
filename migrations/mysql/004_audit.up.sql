-- The audit log (assurance 4.1) and the scopes of API keys.
-- Rows are added and read, never changed: an installation gives its services INSERT and SELECT on audit_event and nothing else.

CREATE TABLE IF NOT EXISTS audit_event (
    id BIGINT NOT NULL AUTO_INCREMENT,
    created_at DATETIME(6) NOT NULL,
    action VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- login_failed, access_denied, key_create …
    actor VARCHAR(190) NOT NULL, -- user id; empty: nobody proved who he is
    role VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- of the actor; empty with him
    key_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- the API key used; empty: none
    ip VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- address or network of the caller; empty: the command line
    request_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    target VARCHAR(190) NOT NULL, -- task, document, base, key or route
    detail VARCHAR(500) NOT NULL,
    times INT NOT NULL, -- how often, when several of a kind were put together
    PRIMARY KEY (id),
    KEY ix_audit_action (action, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'api_key' AND column_name = 'scopes');
SET @step = IF(@missing, 'ALTER TABLE api_key ADD COLUMN scopes VARCHAR(64) NOT NULL DEFAULT ''read,write''', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
