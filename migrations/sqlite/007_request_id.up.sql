-- The X-Request-Id of the request that made a task: in the row, its deliveries and the worker's log lines.

ALTER TABLE ingest_task ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
