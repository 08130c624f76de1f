DROP TABLE IF EXISTS ingest_task_transition;
DROP TABLE IF EXISTS ingest_task;
DROP TABLE IF EXISTS timeline;
