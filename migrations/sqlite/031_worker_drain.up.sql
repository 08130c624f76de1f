-- An operator may ask a process to take no more tasks: drain_at is when that was asked, drained_at when the process had finished what it
-- had. NULL: not so. The API writes the first and clears both, the process writes the second. No row is rewritten.
ALTER TABLE ingest_worker ADD COLUMN drain_at TEXT NULL;
ALTER TABLE ingest_worker ADD COLUMN drained_at TEXT NULL;
