-- Unfinished tasks of which RabbitMQ has confirmed no copy although it was asked, and why (design D19). A row goes with a confirm or
-- with the end of its task.
CREATE TABLE mirror_failure (
    task_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    tries INTEGER NOT NULL, -- messages that were sent in vain
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_mirror_failure_updated ON mirror_failure (updated_at, task_id);
