-- How many tasks a process may run at once, as it said with its last renewal; NULL: it has not said it. No row is rewritten.
ALTER TABLE ingest_worker ADD COLUMN slots INTEGER NULL;
