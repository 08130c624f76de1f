-- What MySQL and MariaDB say differently: INSERT that keeps a row that is there.
-- Where rows are locked the index is forced: left to itself the server reads all of a small table, and so waits for rows of others.

-- name: BasesNamed
SELECT id, user_id, name, metadata_schema FROM knowledge_base FORCE INDEX (uq_base_name) WHERE (@any user_id = ? AND live_name = ?) @forshare;

-- name: BasesOfUsers
SELECT id, user_id, name, metadata_schema
FROM knowledge_base FORCE INDEX (PRIMARY)
WHERE deleted_at IS NULL AND (@any id = ? AND user_id = ?) @forshare;

-- name: BasesInsert
INSERT INTO knowledge_base (id, user_id, name, live_name, search_mode, chunking, metadata_schema, created_at, updated_at, sweep_at)
VALUES (@rows:10)
ON DUPLICATE KEY UPDATE id = id;

-- name: DocumentsWhole
SELECT id, user_id, base_id, title, file_name, media_type, status, segment_count, pages, bytes, content_sha256,
       COALESCE(visible_version_id, ''), visible_no, visible_upload_no, last_no, last_upload_no, latest_task_id,
       created_at, updated_at, deleted_at, COALESCE(metadata, ''), COALESCE(parent_id, ''), parent_no
FROM knowledge_document FORCE INDEX (PRIMARY)
WHERE id IN (@list)
ORDER BY id
@forupdate;

-- The last column says that a task on the file was given up: its bytes are not trusted.
-- name: FilesLock
SELECT id, path, bytes,
       CASE WHEN EXISTS (SELECT 1 FROM document_version v WHERE v.file_id = stored_file.id AND v.state = 'ABANDONED') THEN 1 ELSE 0 END
FROM stored_file FORCE INDEX (PRIMARY) WHERE id IN (@list) ORDER BY id @forupdate;

-- name: KeysInsert
INSERT INTO upload_request (user_id, request_key, request_id, expires_at)
VALUES (@rows:4)
ON DUPLICATE KEY UPDATE request_key = VALUES(request_key);

-- name: KeysLock
SELECT user_id, request_key, request_id, expires_at
FROM upload_request FORCE INDEX (PRIMARY)
WHERE (@any user_id = ? AND request_key = ?) @forupdate;

-- name: GarbageName
INSERT INTO vector_garbage (vector_id, base_id, document_id, birth_version_id, sweep_at)
VALUES (@rows:5)
ON DUPLICATE KEY UPDATE vector_id = vector_id;

-- name: SegmentInsert
INSERT INTO knowledge_segment (document_id, version_id, version, segment_index, content, text_hash, vector_id, birth_version_id,
                               page, page_breaks, heading_path, byte_start, byte_end, tokens, around_from, around_to)
VALUES (@rows:16)
ON DUPLICATE KEY UPDATE id = id;

-- name: LedgerInsert
INSERT INTO embedding_ledger (model_key, text_hash, dim, @name(vector), used_at)
VALUES (@rows:5)
ON DUPLICATE KEY UPDATE dim = VALUES(dim), @name(vector) = VALUES(@name(vector)), used_at = VALUES(used_at);

-- name: GarbageMark
INSERT INTO vector_garbage (vector_id, base_id, document_id, birth_version_id, marked_at, sweep_at)
VALUES (@rows:6)
ON DUPLICATE KEY UPDATE marked_at = VALUES(marked_at), sweep_at = VALUES(sweep_at);

-- name: CountsAdd
INSERT INTO document_count (base_id, status, documents, segments)
VALUES (@rows:4)
ON DUPLICATE KEY UPDATE documents = documents + VALUES(documents), segments = segments + VALUES(segments);
