-- Text that is compared is compared byte for byte. utf8mb4_bin pads: to it 'anna ' is 'anna', and so was the one user the other.
-- @nopad is the server's binary collation that does not pad: the runner puts in utf8mb4_nopad_bin on MariaDB and
-- utf8mb4_0900_bin on MySQL. All statements can run again: a column that has its collation already is left alone.
-- A table with an index over such a column is copied, and takes no writes meanwhile (the runbook says for how long).
-- Columns of ASCII text (ids, hashes, names that we chose) stay: no server has such a collation for them.

ALTER TABLE ingest_task DEFAULT CHARACTER SET utf8mb4 COLLATE @nopad,
  MODIFY user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY file_path VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE @nopad NULL,
  MODIFY workflow_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL DEFAULT '',
  MODIFY type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY channel VARCHAR(32) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY chat_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL DEFAULT '',
  MODIFY idempotency_key VARCHAR(512) CHARACTER SET utf8mb4 COLLATE @nopad NULL,
  MODIFY error_code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE @nopad NULL;

ALTER TABLE knowledge_base DEFAULT CHARACTER SET utf8mb4 COLLATE @nopad,
  MODIFY user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY live_name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad;

ALTER TABLE stored_file DEFAULT CHARACTER SET utf8mb4 COLLATE @nopad,
  MODIFY user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY original_name VARCHAR(500) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY path VARCHAR(255) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL;

ALTER TABLE knowledge_document DEFAULT CHARACTER SET utf8mb4 COLLATE @nopad,
  MODIFY user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY title VARCHAR(500) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY file_name VARCHAR(500) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL;

ALTER TABLE upload_request DEFAULT CHARACTER SET utf8mb4 COLLATE @nopad,
  MODIFY user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL;

ALTER TABLE api_key DEFAULT CHARACTER SET utf8mb4 COLLATE @nopad,
  MODIFY user_id VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY scopes VARCHAR(64) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL DEFAULT 'read,write';

ALTER TABLE audit_event DEFAULT CHARACTER SET utf8mb4 COLLATE @nopad,
  MODIFY actor VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL,
  MODIFY target VARCHAR(190) CHARACTER SET utf8mb4 COLLATE @nopad NOT NULL;
