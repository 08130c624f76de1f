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

-- The index of one database for another one.

-- name: Parts
SELECT id, base_id, segments, tokens, bytes, head FROM knowledge_text_part WHERE base_id = ?;

-- name: PartInsert
INSERT INTO knowledge_text_part (id, base_id, segments, tokens, bytes, busy_until, created_at, head) VALUES (@rows:8);

-- name: Chunks
SELECT part_id, seq, data FROM knowledge_text_chunk WHERE part_id = ? AND seq >= ? AND seq < ?;

-- name: ChunkInsert
INSERT INTO knowledge_text_chunk (part_id, seq, data) VALUES (@rows:3);
