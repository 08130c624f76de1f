-- Bulk operations (design D28): what was asked to be done to many tasks, and how far it is. The operation's own task runs it.
CREATE TABLE IF NOT EXISTS bulk_operation (
    task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL, -- who asked
    role VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- with which role
    action VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    filter VARCHAR(1000) NOT NULL,
    knowledge_base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- of the filter; empty: any
    reason VARCHAR(500) NOT NULL,
    per_second INT NOT NULL, -- 0: no limit
    matched BIGINT NOT NULL, -- tasks that fitted the filter when it began; -1: not counted yet
    done BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped TEXT NOT NULL, -- JSON: how many, by reason
    after_at DATETIME(6) NOT NULL, -- created_at of the last task that was looked at
    after_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- and its id
    created_at DATETIME(6) NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    PRIMARY KEY (task_id),
    KEY ix_bulk_operation_created (created_at, task_id),
    KEY ix_bulk_operation_user (user_id, created_at, task_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
