-- Filter expressions by name (contract §4): a user's own, and shared ones.
CREATE TABLE saved_view (
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    filter TEXT NOT NULL,
    shared INTEGER NOT NULL, -- 1: everybody sees it
    created_at TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX ix_saved_view_name ON saved_view (user_id, name);
