-- Failures by their cause (design D28). A row of failure_group: what failures of one cause, user, base and stage have in common. A row of
-- task_failure: a task whose last attempt failed and that is not CANCELLED, and where it is counted. Failures before this migration are in neither.
CREATE TABLE failure_group (
    id VARCHAR(16) COLLATE "C" NOT NULL, -- a hash of group, user, base and stage
    group_id VARCHAR(16) COLLATE "C" NOT NULL, -- a hash of error_code and pattern
    user_id VARCHAR(190) COLLATE "C" NOT NULL,
    knowledge_base_id VARCHAR(36) COLLATE "C" NOT NULL, -- empty: tasks without a document
    stage VARCHAR(64) NOT NULL,
    error_code VARCHAR(64) NOT NULL, -- empty: none
    pattern VARCHAR(200) NOT NULL, -- the error without numbers, ids, hosts, paths and quoted texts
    permanent SMALLINT NOT NULL, -- 1: no retry cures it
    failures BIGINT NOT NULL, -- ever
    tasks BIGINT NOT NULL, -- rows of task_failure
    task_id VARCHAR(36) COLLATE "C" NOT NULL, -- of the sample
    sample VARCHAR(500) NOT NULL, -- the first error as it was
    message VARCHAR(500) NOT NULL, -- what its user was told
    first_at TIMESTAMPTZ NOT NULL,
    last_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (id)
) WITH (fillfactor = 50);
CREATE INDEX ix_failure_group_group ON failure_group (group_id);
CREATE INDEX ix_failure_group_user ON failure_group (user_id, group_id);

CREATE TABLE task_failure (
    task_id VARCHAR(36) COLLATE "C" NOT NULL,
    failure_id VARCHAR(16) COLLATE "C" NOT NULL, -- of failure_group
    group_id VARCHAR(16) COLLATE "C" NOT NULL,
    created_at TIMESTAMPTZ NOT NULL, -- of the task
    PRIMARY KEY (task_id)
);
CREATE INDEX ix_task_failure_group ON task_failure (group_id, created_at, task_id);
