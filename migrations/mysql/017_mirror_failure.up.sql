-- Unfinished tasks of which RabbitMQ has confirmed no copy although it was asked, and why (design D19). A row goes with a confirm or
-- with the end of its task.
CREATE TABLE IF NOT EXISTS mirror_failure (
    task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    reason VARCHAR(500) NOT NULL,
    tries INT NOT NULL, -- messages that were sent in vain
    created_at DATETIME(6) NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    PRIMARY KEY (task_id),
    KEY ix_mirror_failure_updated (updated_at, task_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
