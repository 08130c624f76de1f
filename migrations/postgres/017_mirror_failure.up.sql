-- Unfinished tasks of which RabbitMQ has confirmed no copy although it was asked, and why (design D19). A row goes with a confirm or
-- with the end of its task.
CREATE TABLE mirror_failure (
    task_id VARCHAR(36) COLLATE "C" NOT NULL,
    reason TEXT NOT NULL,
    tries INT NOT NULL, -- messages that were sent in vain
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_mirror_failure_updated ON mirror_failure (updated_at, task_id);
