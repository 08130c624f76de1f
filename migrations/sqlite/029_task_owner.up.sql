-- Tasks of each user and knowledge base by status (design D28), without those of calls that wake: whoever ends a call's waking adds what
-- it changed. owners of a call says whose tasks it moved: [{"user": …, "base": …, "n": tasks}, …], base is empty for tasks without a document;
-- NULL: its tasks are counted already. Services of the version before write NULL: they are stopped meanwhile.
CREATE TABLE ingest_task_owner (
  user_id TEXT NOT NULL,
  knowledge_base_id TEXT NOT NULL, -- empty: tasks without a document
  status TEXT NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY (user_id, knowledge_base_id, status)
);
CREATE INDEX ix_task_owner_base ON ingest_task_owner (knowledge_base_id);

ALTER TABLE ingest_task_call ADD COLUMN owners TEXT NULL;

INSERT INTO ingest_task_owner (user_id, knowledge_base_id, status, n)
SELECT b.user_id, COALESCE(b.knowledge_base_id, ''), t.status, COUNT(*)
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = b.id
GROUP BY b.user_id, COALESCE(b.knowledge_base_id, ''), t.status;
