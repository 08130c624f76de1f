-- Tasks of each user and knowledge base by status (design D28), without those of calls that wake: whoever ends a call's waking adds what
-- it changed. owners of a call says whose tasks it moved: [{"user": …, "base": …, "n": tasks}, …], base is empty for tasks without a document;
-- NULL: its tasks are counted already. Services of the version before write NULL: they are stopped meanwhile.
CREATE TABLE IF NOT EXISTS ingest_task_owner (
  user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  knowledge_base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- empty: tasks without a document
  status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD', 'SUSPENDED', 'CANCELLED') NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (user_id, knowledge_base_id, status),
  KEY ix_task_owner_base (knowledge_base_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- ADD COLUMN knows no IF NOT EXISTS on MySQL, and a run that broke off is repeated.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.columns
                 WHERE table_schema = DATABASE() AND table_name = 'ingest_task_call' AND column_name = 'owners');
SET @step = IF(@missing, 'ALTER TABLE ingest_task_call ADD COLUMN owners MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, ALGORITHM = INSTANT', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

TRUNCATE ingest_task_owner;
INSERT INTO ingest_task_owner (user_id, knowledge_base_id, status, n)
SELECT b.user_id, COALESCE(b.knowledge_base_id, ''), t.status, COUNT(*)
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, '-', ''))
GROUP BY b.user_id, COALESCE(b.knowledge_base_id, ''), t.status;
