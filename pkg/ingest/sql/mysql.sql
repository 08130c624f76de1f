-- What MySQL and MariaDB say differently: INSERT that keeps a row that is there, and the shared lock.

-- name: BaseInsert
INSERT INTO knowledge_base (id, user_id, name, live_name, created_at, updated_at, sweep_at)
VALUES (?, ?, ?, ?, ?, ?, @never)
ON DUPLICATE KEY UPDATE id = id;

-- name: BaseKeep
SELECT id FROM knowledge_base WHERE id = ? AND deleted_at IS NULL LOCK IN SHARE MODE;

-- name: KeyInsert
INSERT INTO upload_request (user_id, request_key, request_id, expires_at)
VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE request_key = request_key;

-- name: DocumentInsert
INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, same_sha256,
                                last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at)
VALUES (?, ?, ?, ?, ?, ?, 'QUEUED', ?, ?, ?, 1, 1, ?, ?, ?, @never)
ON DUPLICATE KEY UPDATE id = id;

-- name: GarbageName
INSERT INTO vector_garbage (vector_id, base_id, document_id, birth_version_id, sweep_at)
VALUES (@rows:5)
ON DUPLICATE KEY UPDATE vector_id = vector_id;

-- name: SegmentInsert
INSERT INTO knowledge_segment (document_id, version_id, version, segment_index, content, text_hash, vector_id, birth_version_id,
                               page, heading_path, byte_start, byte_end, tokens)
VALUES (@rows:13)
ON DUPLICATE KEY UPDATE id = id;

-- name: LedgerInsert
INSERT INTO embedding_ledger (model_key, text_hash, dim, vector, used_at)
VALUES (@rows:5)
ON DUPLICATE KEY UPDATE dim = VALUES(dim), vector = VALUES(vector), used_at = VALUES(used_at);

-- name: GarbageMark
INSERT INTO vector_garbage (vector_id, base_id, document_id, birth_version_id, marked_at, sweep_at)
VALUES (@rows:6)
ON DUPLICATE KEY UPDATE marked_at = VALUES(marked_at), sweep_at = VALUES(sweep_at);
