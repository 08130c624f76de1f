-- Live documents and their segments of each knowledge base by status (design D28). No change of a document writes to a row of
-- document_count, which many share: it adds a row of document_count_change, and the sweeper joins those. So what is counted is the sum
-- of both. Services of the version before add none: they are stopped meanwhile.
CREATE TABLE IF NOT EXISTS document_count (
  base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  documents BIGINT NOT NULL,
  segments BIGINT NOT NULL,
  PRIMARY KEY (base_id, status)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS document_count_change (
  no BIGINT NOT NULL AUTO_INCREMENT,
  base_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  documents BIGINT NOT NULL,
  segments BIGINT NOT NULL,
  PRIMARY KEY (no)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

TRUNCATE document_count_change;
TRUNCATE document_count;
INSERT INTO document_count (base_id, status, documents, segments)
SELECT base_id, status, COUNT(*), SUM(segment_count)
FROM knowledge_document
WHERE deleted_at IS NULL
GROUP BY base_id, status;

-- DROP INDEX knows no IF EXISTS on MySQL, and a run that broke off is repeated.
SET @there = (SELECT COUNT(*) FROM information_schema.statistics
               WHERE table_schema = DATABASE() AND table_name = 'knowledge_document' AND index_name = 'ix_document_count');
SET @step = IF(@there, 'DROP INDEX ix_document_count ON knowledge_document', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
