DROP TABLE IF EXISTS task_failure;
DROP TABLE IF EXISTS failure_group;
