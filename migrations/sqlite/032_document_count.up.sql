-- Live documents and their segments of each knowledge base by status (design D28). No change of a document writes to a row of
-- document_count, which many share: it adds a row of document_count_change, and the sweeper joins those. So what is counted is the sum
-- of both. Services of the version before add none: they are stopped meanwhile.
CREATE TABLE document_count (
  base_id TEXT NOT NULL,
  status TEXT NOT NULL,
  documents INTEGER NOT NULL,
  segments INTEGER NOT NULL,
  PRIMARY KEY (base_id, status)
);

CREATE TABLE document_count_change (
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  base_id TEXT NOT NULL,
  status TEXT NOT NULL,
  documents INTEGER NOT NULL,
  segments INTEGER NOT NULL
);

INSERT INTO document_count (base_id, status, documents, segments)
SELECT base_id, status, COUNT(*), SUM(segment_count)
FROM knowledge_document
WHERE deleted_at IS NULL
GROUP BY base_id, status;

DROP INDEX ix_document_count;
