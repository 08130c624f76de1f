-- Bulk operations (design D28): what was asked to be done to many tasks, and how far it is. The operation's own task runs it.
CREATE TABLE bulk_operation (
    task_id TEXT NOT NULL,
    user_id TEXT NOT NULL, -- who asked
    role TEXT NOT NULL, -- with which role
    action TEXT NOT NULL,
    filter TEXT NOT NULL,
    knowledge_base_id TEXT NOT NULL, -- of the filter; empty: any
    reason TEXT NOT NULL,
    per_second INT NOT NULL, -- 0: no limit
    matched BIGINT NOT NULL, -- tasks that fitted the filter when it began; -1: not counted yet
    done BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped TEXT NOT NULL, -- JSON: how many, by reason
    after_at TEXT NOT NULL, -- created_at of the last task that was looked at
    after_id TEXT NOT NULL, -- and its id
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_bulk_operation_created ON bulk_operation (created_at, task_id);
CREATE INDEX ix_bulk_operation_user ON bulk_operation (user_id, created_at, task_id);
