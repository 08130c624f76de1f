-- The rows of documents that went through the pipeline, as far as a search reads them.

-- name: BaseInsert
INSERT INTO knowledge_base (id, user_id, name, live_name, created_at, updated_at) VALUES (@rows:6);

-- name: DocumentInsert
INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, segment_count, bytes, content_sha256,
                                visible_version_id, visible_no, visible_upload_no, last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at)
VALUES (@rows:19);

-- name: VersionInsert
INSERT INTO document_version (id, document_id, base_id, task_id, file_id, no, upload_no, state, title, segment_count, created_at, updated_at, sweep_at)
VALUES (@rows:13);

-- name: SegmentInsert
INSERT INTO knowledge_segment (document_id, version_id, version, segment_index, content, text_hash, vector_id, birth_version_id,
                               page, heading_path, byte_start, byte_end, tokens)
VALUES (@rows:13);

-- Copies of the rows of a base under other ids.

-- name: DocumentCopy
INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, segment_count, bytes, content_sha256,
                                visible_version_id, visible_no, visible_upload_no, last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at)
SELECT REPLACE(id, ?, ?), user_id, ?, title, file_name, media_type, status, segment_count, bytes, content_sha256,
       REPLACE(visible_version_id, ?, ?), visible_no, visible_upload_no, last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at
  FROM knowledge_document WHERE base_id = ?;

-- name: VersionCopy
INSERT INTO document_version (id, document_id, base_id, task_id, file_id, no, upload_no, state, title, segment_count, created_at, updated_at, sweep_at)
SELECT REPLACE(id, ?, ?), REPLACE(document_id, ?, ?), ?, task_id, file_id, no, upload_no, state, title, segment_count, created_at, updated_at, sweep_at
  FROM document_version WHERE base_id = ?;

-- name: SegmentCopy
INSERT INTO knowledge_segment (document_id, version_id, version, segment_index, content, text_hash, vector_id, birth_version_id,
                               page, heading_path, byte_start, byte_end, tokens)
SELECT REPLACE(s.document_id, ?, ?), REPLACE(s.version_id, ?, ?), s.version, s.segment_index, s.content, s.text_hash, s.vector_id,
       REPLACE(s.birth_version_id, ?, ?), s.page, s.heading_path, s.byte_start, s.byte_end, s.tokens
  FROM knowledge_segment s JOIN knowledge_document d ON d.id = s.document_id WHERE d.base_id = ?;

-- The index of one database for another one.

-- name: Parts
SELECT id, segments, tokens, head FROM knowledge_text_part WHERE base_id = ? ORDER BY id;

-- name: PartCount
SELECT COUNT(*) FROM knowledge_text_part WHERE base_id = ?;

-- name: PartInsert
INSERT INTO knowledge_text_part (id, base_id, segments, tokens, bytes, busy_until, created_at, head) VALUES (@rows:8);

-- name: Chunks
SELECT data FROM knowledge_text_chunk WHERE part_id = ? ORDER BY seq;

-- name: ChunkInsert
INSERT INTO knowledge_text_chunk (part_id, seq, data) VALUES (@rows:3);
