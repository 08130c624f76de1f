-- Workflows that have ended (tasks of the type workflow.execute), one row each: written in the transaction of the end, removed when the
-- task is put back.
CREATE TABLE workflow_runs (
    task_id VARCHAR(36) COLLATE "C" NOT NULL,
    workflow_id VARCHAR(190) NOT NULL,
    idempotency_key VARCHAR(512) NULL,
    status VARCHAR(16) COLLATE "C" NOT NULL, -- SUCCEEDED, DEAD or CANCELLED
    result TEXT NULL, -- JSON
    created_at TIMESTAMPTZ NOT NULL, -- of the task
    updated_at TIMESTAMPTZ NOT NULL, -- of its end
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_workflow_runs_workflow ON workflow_runs (workflow_id, updated_at);
