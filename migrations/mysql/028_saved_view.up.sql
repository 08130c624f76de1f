-- Filter expressions by name (contract §4): a user's own, and shared ones.
CREATE TABLE IF NOT EXISTS saved_view (
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
    name VARCHAR(100) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
    filter VARCHAR(1000) NOT NULL,
    shared TINYINT NOT NULL, -- 1: everybody sees it
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY ix_saved_view_name (user_id, name)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
