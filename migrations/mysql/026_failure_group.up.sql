-- Failures by their cause (design D28). A row of failure_group: what failures of one cause, user, base and stage have in common. A row of
-- task_failure: a task whose last attempt failed and that is not CANCELLED, and where it is counted. Failures before this migration are in neither.
CREATE TABLE IF NOT EXISTS failure_group (
    id CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a hash of group, user, base and stage
    group_id CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a hash of error_code and pattern
    user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
    knowledge_base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- empty: tasks without a document
    stage VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    error_code VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- empty: none
    pattern VARCHAR(200) NOT NULL, -- the error without numbers, ids, hosts, paths and quoted texts
    permanent TINYINT NOT NULL, -- 1: no retry cures it
    failures BIGINT NOT NULL, -- ever
    tasks BIGINT NOT NULL, -- rows of task_failure
    task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- of the sample
    sample VARCHAR(500) NOT NULL, -- the first error as it was
    message VARCHAR(500) NOT NULL, -- what its user was told
    first_at DATETIME(6) NOT NULL,
    last_at DATETIME(6) NOT NULL,
    PRIMARY KEY (id),
    KEY ix_failure_group_group (group_id),
    KEY ix_failure_group_user (user_id, group_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS task_failure (
    task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    failure_id CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- of failure_group
    group_id CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at DATETIME(6) NOT NULL, -- of the task
    PRIMARY KEY (task_id),
    KEY ix_task_failure_group (group_id, created_at, task_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
