-- Workflows that have ended (tasks of the type workflow.execute), one row each: written in the transaction of the end, removed when the
-- task is put back.
CREATE TABLE workflow_runs (
    task_id TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    idempotency_key TEXT NULL,
    status TEXT NOT NULL, -- SUCCEEDED, DEAD or CANCELLED
    result TEXT NULL, -- JSON
    created_at TEXT NOT NULL, -- of the task
    updated_at TEXT NOT NULL, -- of its end
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_workflow_runs_workflow ON workflow_runs (workflow_id, updated_at);
