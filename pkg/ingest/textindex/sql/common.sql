-- The full-text index of knowledge bases (package textindex): parts, and their bytes in chunks. A part never changes.

-- name: PartInsert
INSERT INTO knowledge_text_part (id, base_id, segments, tokens, bytes, busy_until, created_at, head)
VALUES (@rows:8);

-- name: ChunkInsert
INSERT INTO knowledge_text_chunk (part_id, seq, data)
VALUES (@rows:3);

-- name: PartsOfBase
SELECT id, segments, tokens, bytes FROM knowledge_text_part WHERE base_id = ? ORDER BY id;

-- name: PartsIdle
SELECT id, segments, tokens, bytes FROM knowledge_text_part WHERE base_id = ? AND busy_until <= ? ORDER BY id;

-- name: BasesGrown
SELECT DISTINCT base_id FROM knowledge_text_part WHERE id > ?;

-- name: BasesWithParts
SELECT base_id FROM knowledge_text_part GROUP BY base_id HAVING COUNT(*) >= ?;

-- name: PartsClaim
-- Nobody else merges these meanwhile; a merge whose process died ends by itself.
UPDATE knowledge_text_part SET busy_until = ? WHERE busy_until <= ? AND id IN (@list);

-- name: PartsDelete
DELETE FROM knowledge_text_part WHERE id IN (@list);

-- name: PartsOfNoBase
DELETE FROM knowledge_text_part
 WHERE NOT EXISTS (SELECT 1 FROM knowledge_base b WHERE b.id = knowledge_text_part.base_id);

-- name: Chunks
SELECT part_id, seq, data FROM knowledge_text_chunk WHERE (@any part_id = ? AND seq = ?);

-- name: Heads
SELECT id, 0, head FROM knowledge_text_part WHERE id IN (@list);

-- name: ChunkLast
SELECT COALESCE(MAX(seq), 0) FROM knowledge_text_chunk WHERE part_id = ?;

-- name: ChunksDelete
DELETE FROM knowledge_text_chunk WHERE part_id = ? AND seq < ?;

-- name: ChunksOrphaned
-- Chunks of a merge that did not end, or of parts that were merged. Ids rise with time.
SELECT DISTINCT c.part_id
  FROM knowledge_text_chunk c
 WHERE c.part_id < ? AND NOT EXISTS (SELECT 1 FROM knowledge_text_part p WHERE p.id = c.part_id)
 LIMIT 100;

-- name: ChunkOrphaned
SELECT c.part_id FROM knowledge_text_chunk c WHERE NOT EXISTS (SELECT 1 FROM knowledge_text_part p WHERE p.id = c.part_id) LIMIT 1;

-- name: BasesAll
SELECT id FROM knowledge_base WHERE deleted_at IS NULL AND id > ? ORDER BY id LIMIT 200;

-- name: BasesUnindexed
SELECT b.id
  FROM knowledge_base b
 WHERE b.deleted_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM knowledge_text_part p WHERE p.base_id = b.id)
   AND EXISTS (SELECT 1 FROM knowledge_document d
                WHERE d.base_id = b.id AND d.deleted_at IS NULL AND d.visible_version_id IS NOT NULL AND d.segment_count > 0)
 LIMIT 100;

-- name: PartThere
SELECT id FROM knowledge_text_part WHERE id = ?;

-- name: VersionsVisible
SELECT visible_version_id
  FROM knowledge_document
 WHERE base_id = ? AND deleted_at IS NULL AND visible_version_id > ?
 ORDER BY visible_version_id
 LIMIT 20000;

-- name: VersionsBuilding
SELECT v.id
  FROM knowledge_document d
  JOIN document_version v ON v.document_id = d.id
 WHERE d.base_id = ? AND d.deleted_at IS NULL AND v.state = 'BUILDING' AND v.id > ?
 ORDER BY v.id
 LIMIT 20000;

-- name: VersionAlive
SELECT v.document_id, v.title
  FROM document_version v
  JOIN knowledge_document d ON d.id = v.document_id
 WHERE v.id = ? AND v.state IN ('BUILDING', 'VISIBLE') AND d.deleted_at IS NULL;

-- name: HashesOf
SELECT version_id, segment_index, text_hash FROM knowledge_segment WHERE version_id IN (@list);

-- name: SegmentsOfVersion
SELECT segment_index, text_hash, heading_path, content
  FROM knowledge_segment
 WHERE version_id = ? AND segment_index > ?
 ORDER BY segment_index
 LIMIT 500;

-- name: VersionsAlive
SELECT v.id
  FROM document_version v
  JOIN knowledge_document d ON d.id = v.document_id
 WHERE v.state IN ('BUILDING', 'VISIBLE') AND d.deleted_at IS NULL AND v.id IN (@list);
