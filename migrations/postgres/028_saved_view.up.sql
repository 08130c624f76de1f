-- Filter expressions by name (contract §4): a user's own, and shared ones.
CREATE TABLE saved_view (
    id VARCHAR(36) COLLATE "C" NOT NULL,
    user_id VARCHAR(190) COLLATE "C" NOT NULL,
    name VARCHAR(100) COLLATE "C" NOT NULL,
    filter VARCHAR(1000) NOT NULL,
    shared SMALLINT NOT NULL, -- 1: everybody sees it
    created_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX ix_saved_view_name ON saved_view (user_id, name);
