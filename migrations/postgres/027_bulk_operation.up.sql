-- Bulk operations (design D28): what was asked to be done to many tasks, and how far it is. The operation's own task runs it.
CREATE TABLE bulk_operation (
    task_id VARCHAR(36) COLLATE "C" NOT NULL,
    user_id VARCHAR(190) COLLATE "C" NOT NULL, -- who asked
    role VARCHAR(16) NOT NULL, -- with which role
    action VARCHAR(16) NOT NULL,
    filter VARCHAR(1000) NOT NULL,
    knowledge_base_id VARCHAR(36) COLLATE "C" NOT NULL, -- of the filter; empty: any
    reason VARCHAR(500) NOT NULL,
    per_second INT NOT NULL, -- 0: no limit
    matched BIGINT NOT NULL, -- tasks that fitted the filter when it began; -1: not counted yet
    done BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped TEXT NOT NULL, -- JSON: how many, by reason
    after_at TIMESTAMPTZ NOT NULL, -- created_at of the last task that was looked at
    after_id VARCHAR(36) COLLATE "C" NOT NULL, -- and its id
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_bulk_operation_created ON bulk_operation (created_at, task_id);
CREATE INDEX ix_bulk_operation_user ON bulk_operation (user_id, created_at, task_id);
