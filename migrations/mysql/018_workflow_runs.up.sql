-- Workflows that have ended (tasks of the type workflow.execute), one row each: written in the transaction of the end, removed when the
-- task is put back.
CREATE TABLE IF NOT EXISTS workflow_runs (
    task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    workflow_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
    idempotency_key VARCHAR(512) CHARACTER SET utf8mb4 COLLATE @nopad NULL,
    status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- SUCCEEDED, DEAD or CANCELLED
    result MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- JSON
    created_at DATETIME(6) NOT NULL, -- of the task
    updated_at DATETIME(6) NOT NULL, -- of its end
    PRIMARY KEY (task_id),
    KEY ix_workflow_runs_workflow (workflow_id, updated_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
