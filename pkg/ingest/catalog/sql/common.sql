-- The write side of the application: accept, process, finish, sweep, delete (design D8, D10, D13).
-- Lock order everywhere: tasks by id (the store's), bases, documents by id, stored files by id, inserts.

-- ---------------------------------------------------------------- bases

-- name: BaseOfUser
SELECT id, user_id, name, model_key, dim, collection, search_mode, chunking, metadata_schema, created_at, updated_at
FROM knowledge_base
WHERE id = ? AND user_id = ? AND deleted_at IS NULL;

-- name: BaseNamed
SELECT id, user_id, name, model_key, dim, collection, search_mode, chunking, metadata_schema, created_at, updated_at
FROM knowledge_base
WHERE user_id = ? AND live_name = ?;

-- name: BaseReachable
SELECT id, user_id, name, model_key, dim, collection, search_mode, chunking, metadata_schema, created_at, updated_at
FROM knowledge_base
WHERE id = ? AND (? = 1 OR user_id = ?) AND deleted_at IS NULL;

-- name: BaseLock
SELECT id FROM knowledge_base WHERE id = ? AND deleted_at IS NULL @forupdate;

-- The first run that has vectors says which model the base is made with.
-- name: BaseSetModel
UPDATE knowledge_base SET model_key = ?, dim = ?, updated_at = ? WHERE id = ? AND model_key = '';

-- name: BaseModel
SELECT model_key, dim FROM knowledge_base WHERE id = ?;

-- name: BaseSet
UPDATE knowledge_base SET search_mode = ?, chunking = ?, metadata_schema = ?, updated_at = ? WHERE id = ?;

-- name: BaseTombstone
UPDATE knowledge_base SET live_name = NULL, deleted_at = ?, updated_at = ?, sweep_at = ? WHERE id = ? AND deleted_at IS NULL;

-- name: BaseHasDocument
SELECT id FROM knowledge_document WHERE base_id = ? AND deleted_at IS NULL LIMIT 1;

-- name: BaseDocuments
SELECT id FROM knowledge_document WHERE base_id = ? AND deleted_at IS NULL ORDER BY id LIMIT ?;

-- name: BasesDue
SELECT id, '', sweep_pass FROM knowledge_base WHERE sweep_at <= ? ORDER BY sweep_at, id LIMIT ?;

-- name: BaseRowLeft
SELECT id FROM knowledge_document WHERE base_id = ? LIMIT 1;

-- name: BaseSweepLater
UPDATE knowledge_base SET sweep_pass = ?, sweep_at = ? WHERE id = ? AND sweep_pass = ? AND deleted_at IS NOT NULL;

-- name: BaseGone
DELETE FROM knowledge_base WHERE id = ? AND sweep_pass = ? AND deleted_at IS NOT NULL;

-- ---------------------------------------------------------------- another model (design D26)

-- name: BaseShadow
SELECT shadow, shadow_model FROM knowledge_base WHERE id = ?;

-- name: BaseShadowSet
UPDATE knowledge_base SET shadow = ?, shadow_model = ?, shadow_dim = 0, closing_until = NULL, updated_at = ? WHERE id = ?;

-- name: BaseShadowDim
UPDATE knowledge_base SET shadow_dim = ? WHERE id = ? AND shadow = ? AND shadow_dim = 0;

-- name: BaseClosing
UPDATE knowledge_base SET closing_until = ? WHERE id = ? AND shadow = ?;

-- name: BaseStaysClosed
UPDATE knowledge_base SET closing_until = ? WHERE id = ? AND shadow = ? AND closing_until > ?;

-- The vectors of the base are those of its shadow from now on; without any it has no model. MySQL assigns from left to right.
-- name: BaseMoved
UPDATE knowledge_base
SET collection = shadow, model_key = CASE shadow_dim WHEN 0 THEN '' ELSE shadow_model END, dim = shadow_dim, shadow = '', shadow_model = '', shadow_dim = 0, closing_until = NULL, updated_at = ?
WHERE id = ? AND shadow = ? AND closing_until > ?;

-- name: CollectionRetire
INSERT INTO retired_collection (id, base_id, sweep_at) VALUES (?, ?, ?);

-- name: CollectionsDue
SELECT id, base_id, sweep_pass FROM retired_collection WHERE sweep_at <= ? ORDER BY sweep_at, id LIMIT ?;

-- name: CollectionLater
UPDATE retired_collection SET sweep_pass = ?, sweep_at = ? WHERE id = ? AND sweep_pass = ?;

-- name: CollectionGone
DELETE FROM retired_collection WHERE id = ? AND sweep_pass = ?;

-- Where vectors of a base may lie, a deleted one's too.
-- name: BaseCollections
SELECT CASE collection WHEN '' THEN id ELSE collection END FROM knowledge_base WHERE id = ?
UNION
SELECT shadow FROM knowledge_base WHERE id = ? AND shadow <> ''
UNION
SELECT id FROM retired_collection WHERE base_id = ?;

-- name: UnmovedCount
SELECT COUNT(*)
FROM knowledge_document d
JOIN document_version v ON v.id = d.visible_version_id
WHERE d.base_id = ? AND d.deleted_at IS NULL AND v.collection <> ?;

-- name: UnmovedTokens
SELECT COALESCE(SUM(s.tokens), 0)
FROM knowledge_document d
JOIN document_version v ON v.id = d.visible_version_id
JOIN knowledge_segment s ON s.version_id = v.id
WHERE d.base_id = ? AND d.deleted_at IS NULL AND v.collection <> ?;

-- name: Unmoved
SELECT d.id, v.id
FROM knowledge_document d
JOIN document_version v ON v.id = d.visible_version_id
WHERE d.base_id = ? AND d.deleted_at IS NULL AND d.id > ? AND v.collection <> ?
ORDER BY d.id
LIMIT ?;

-- name: MovingSegments
SELECT segment_index, content, text_hash, vector_id, birth_version_id
FROM knowledge_segment
WHERE version_id = ? AND segment_index > ?
ORDER BY segment_index
LIMIT ?;

-- Versions that are still to be written to a shadow that is still made.
-- name: VersionsMoving
SELECT v.id
FROM document_version v
JOIN knowledge_base b ON b.id = v.base_id
WHERE v.state = 'VISIBLE' AND b.deleted_at IS NULL AND b.shadow = ? AND v.id IN (@list);

-- name: VersionsMoved
UPDATE document_version SET collection = ? WHERE state = 'VISIBLE' AND id IN (@list);

-- name: DocumentsAfter
SELECT id FROM knowledge_document WHERE base_id = ? AND id > ? ORDER BY id LIMIT ?;

-- ---------------------------------------------------------------- requests with a key

-- name: KeysInsert
INSERT INTO upload_request (user_id, request_key, request_id, expires_at)
VALUES (@rows:4)
ON CONFLICT DO NOTHING;

-- name: KeysLock
SELECT user_id, request_key, request_id, expires_at FROM upload_request WHERE (@any user_id = ? AND request_key = ?) @forupdate;

-- name: KeysHeld
SELECT user_id, request_key FROM upload_request WHERE expires_at > ? AND (@any user_id = ? AND request_key = ?);

-- name: KeyTake
UPDATE upload_request SET request_id = ?, expires_at = ? WHERE user_id = ? AND request_key = ?;

-- name: KeyRenew
UPDATE upload_request SET expires_at = ? WHERE user_id = ? AND request_key = ? AND request_id = ?;

-- name: KeysRelease
DELETE FROM upload_request WHERE (@any user_id = ? AND request_key = ? AND request_id = ?);

-- name: KeysExpired
DELETE FROM upload_request WHERE expires_at < ?;

-- ---------------------------------------------------------------- accept

-- Each statement serves a whole batch of uploads. The bases are locked with a share, so that nobody deletes one under them.

-- name: TasksBrief
SELECT id, status, COALESCE(payload, ''), COALESCE(file_path, '') FROM ingest_task WHERE id IN (@list);

-- name: DocumentsBase
SELECT id, user_id, base_id FROM knowledge_document WHERE deleted_at IS NULL AND (@any id = ? AND user_id = ?);

-- name: BasesNamed
SELECT id, user_id, name, metadata_schema FROM knowledge_base WHERE (@any user_id = ? AND live_name = ?) @forshare;

-- name: BasesOfUsers
SELECT id, user_id, name, metadata_schema FROM knowledge_base WHERE deleted_at IS NULL AND (@any id = ? AND user_id = ?) @forshare;

-- name: BasesInsert
INSERT INTO knowledge_base (id, user_id, name, live_name, search_mode, chunking, metadata_schema, created_at, updated_at, sweep_at)
VALUES (@rows:10)
ON CONFLICT DO NOTHING;

-- What has the uploads' bytes already: live documents of their bases, and stored files of their users, the oldest first.
-- name: SameBytes
SELECT 'file' AS kind, id, user_id AS home, sha256 AS hash FROM stored_file WHERE (@any user_id = ? AND sha256 = ?)
UNION ALL
SELECT 'document', id, base_id, same_sha256 FROM knowledge_document WHERE (@any base_id = ? AND same_sha256 = ?)
ORDER BY 2;

-- name: DocumentsWhole
SELECT id, user_id, base_id, title, file_name, media_type, status, segment_count, pages, bytes, content_sha256,
       COALESCE(visible_version_id, ''), visible_no, visible_upload_no, last_no, last_upload_no, latest_task_id,
       created_at, updated_at, deleted_at, COALESCE(metadata, ''), COALESCE(parent_id, ''), parent_no
FROM knowledge_document
WHERE id IN (@list)
ORDER BY id
@forupdate;

-- The last column says that a task on the file was given up: its bytes are not trusted.
-- name: FilesLock
SELECT id, path, bytes,
       CASE WHEN EXISTS (SELECT 1 FROM document_version v WHERE v.file_id = stored_file.id AND v.state = 'ABANDONED') THEN 1 ELSE 0 END
FROM stored_file WHERE id IN (@list) ORDER BY id @forupdate;

-- name: FilesInsert
INSERT INTO stored_file (id, user_id, sha256, bytes, original_name, media_type, path, created_at)
VALUES (@rows:8);

-- The same bytes accepted at the same moment by another process win by the unique index; the batch is then run again.
-- name: DocumentsInsert
INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, same_sha256,
                                last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at, metadata, parent_id, parent_no)
VALUES (@rows:19);

-- name: DocumentLock
SELECT id, user_id, base_id, title, file_name, media_type, status, segment_count, pages, bytes, content_sha256,
       COALESCE(visible_version_id, ''), visible_no, visible_upload_no, last_no, last_upload_no, latest_task_id,
       created_at, updated_at, deleted_at, COALESCE(metadata, ''), COALESCE(parent_id, ''), parent_no
FROM knowledge_document
WHERE id = ?
@forupdate;

-- A further upload of the document; what its readers see stays until a version of it is visible.
-- name: DocumentUpload
UPDATE knowledge_document
SET file_name = ?, media_type = ?, bytes = ?, content_sha256 = ?, same_sha256 = ?,
    last_no = last_no + 1, last_upload_no = last_upload_no + 1, latest_task_id = ?, updated_at = ?,
    status = CASE WHEN visible_no > 0 THEN 'READY' ELSE 'QUEUED' END,
    title = CASE WHEN visible_no > 0 THEN title ELSE ? END,
    metadata = CASE WHEN visible_no > 0 THEN metadata ELSE ? END
WHERE id = ?;

-- ---------------------------------------------------------------- attachments

-- The version that a task made of a live document, and which of its versions is visible.
-- name: VersionOfTask
SELECT v.no, d.visible_no
FROM document_version v
JOIN knowledge_document d ON d.id = v.document_id
WHERE v.document_id = ? AND v.task_id = ? AND d.user_id = ? AND d.deleted_at IS NULL;

-- name: DocumentParent
SELECT COALESCE(parent_id, '') FROM knowledge_document WHERE id = ?;

-- name: Attachments
SELECT id, file_name, content_sha256, COALESCE(metadata, ''), parent_no
FROM knowledge_document
WHERE parent_id = ? AND deleted_at IS NULL
ORDER BY id;

-- name: AttachmentKeep
UPDATE knowledge_document SET parent_no = ? WHERE id = ? AND parent_id = ? AND parent_no < ? AND deleted_at IS NULL;

-- name: AttachmentsOf
SELECT id FROM knowledge_document WHERE parent_id = ? AND deleted_at IS NULL ORDER BY id LIMIT ?;

-- name: FileLock
SELECT path FROM stored_file WHERE id = ? @forupdate;

-- ---------------------------------------------------------------- process

-- What runs work on: the open versions of their tasks, with the documents as they are now.
-- name: WorkLoad
SELECT v.task_id, v.id, v.document_id, v.base_id, v.no, v.upload_no, v.title,
       f.path, f.sha256, f.bytes, d.deleted_at, d.visible_upload_no, b.model_key, b.dim, b.collection, b.chunking
FROM document_version v
JOIN knowledge_document d ON d.id = v.document_id
JOIN knowledge_base b ON b.id = v.base_id
LEFT JOIN stored_file f ON f.id = v.file_id
WHERE v.state = 'BUILDING' AND v.task_id IN (@list)
ORDER BY v.no;

-- name: BaseMade
SELECT v.extractor, v.splitter, COUNT(*), SUM(v.segment_count)
FROM knowledge_document d
JOIN document_version v ON v.id = d.visible_version_id
WHERE d.base_id = ? AND d.deleted_at IS NULL
GROUP BY v.extractor, v.splitter
ORDER BY v.extractor, v.splitter;

-- name: TokensMade
SELECT COALESCE(SUM(s.tokens), 0)
FROM knowledge_document d
JOIN document_version v ON v.id = d.visible_version_id
JOIN knowledge_segment s ON s.version_id = v.id
WHERE d.base_id = ? AND d.deleted_at IS NULL AND (@any v.extractor = ? AND v.splitter = ?);

-- name: DocumentsMade
SELECT d.id, d.latest_task_id
FROM knowledge_document d
JOIN document_version v ON v.id = d.visible_version_id
WHERE d.base_id = ? AND d.deleted_at IS NULL AND d.id > ? AND (@any v.extractor = ? AND v.splitter = ?)
ORDER BY d.id
LIMIT ?;

-- name: VisibleVectors
SELECT segment_index, text_hash, vector_id, birth_version_id
FROM knowledge_segment
WHERE version_id = ? AND segment_index > ?
ORDER BY segment_index
LIMIT ?;

-- name: DocumentVisible
SELECT visible_version_id FROM knowledge_document WHERE id = ? AND visible_version_id IS NOT NULL;

-- How versions stand, whose tasks' locks the holders have. The last two tell whether an earlier run has left rows or named
-- vectors as garbage.
-- name: VersionsStand
SELECT v.id, v.state, v.model_key, v.collection,
       CASE WHEN EXISTS (SELECT 1 FROM knowledge_segment s WHERE s.version_id = v.id) THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM vector_garbage g WHERE g.birth_version_id = v.id) THEN 1 ELSE 0 END
FROM document_version v
WHERE v.id IN (@list);

-- name: OwnRows
SELECT id, segment_index, vector_id, birth_version_id, @name(stored), COALESCE(around_from, 0), COALESCE(around_to, 0) FROM knowledge_segment WHERE version_id = ? ORDER BY segment_index;

-- name: RowsDelete
DELETE FROM knowledge_segment WHERE id IN (@list);

-- name: GarbageName
INSERT INTO vector_garbage (vector_id, base_id, document_id, birth_version_id, sweep_at)
VALUES (@rows:5)
ON CONFLICT DO NOTHING;

-- A dropped id whose row comes back is named by the row again; a marked one never comes back.
-- name: GarbageForget
DELETE FROM vector_garbage WHERE marked_at IS NULL AND vector_id IN (@list);

-- name: RowsUnstored
UPDATE knowledge_segment SET @name(stored) = 0 WHERE version_id = ? AND @name(stored) = 1;

-- name: RowsOfVersionHold
SELECT vector_id FROM knowledge_segment WHERE version_id = ? AND vector_id IN (@list);

-- name: SegmentInsert
INSERT INTO knowledge_segment (document_id, version_id, version, segment_index, content, text_hash, vector_id, birth_version_id,
                               page, page_breaks, heading_path, byte_start, byte_end, tokens, around_from, around_to)
VALUES (@rows:16)
ON CONFLICT DO NOTHING;

-- With the last rows: what the versions are made of, and with what. @cases is WHEN ? THEN ? for each of them.
-- name: VersionsBuilt
UPDATE document_version
SET updated_at = ?,
    model_key = CASE id@cases ELSE model_key END,
    collection = CASE id@cases ELSE collection END,
    extractor = CASE id@cases ELSE extractor END,
    splitter = CASE id@cases ELSE splitter END,
    dim = CASE id@cases ELSE dim END,
    segment_count = CASE id@cases ELSE segment_count END,
    pages = CASE id@cases ELSE pages END,
    title = CASE id@cases ELSE title END
WHERE state = 'BUILDING' AND id IN (@list);

-- name: RowsStored
UPDATE knowledge_segment SET @name(stored) = 1 WHERE version_id = ? AND segment_index IN (@list);

-- ---------------------------------------------------------------- embedding cache

-- name: LedgerKnown
SELECT text_hash, dim, used_at FROM embedding_ledger WHERE model_key = ? AND text_hash IN (@list);

-- name: LedgerFind
SELECT text_hash, dim, @name(vector) FROM embedding_ledger WHERE model_key = ? AND text_hash IN (@list);

-- name: LedgerTouch
UPDATE embedding_ledger SET used_at = ? WHERE model_key = ? AND text_hash IN (@list);

-- name: LedgerInsert
INSERT INTO embedding_ledger (model_key, text_hash, dim, @name(vector), used_at)
VALUES (@rows:5)
ON CONFLICT (model_key, text_hash) DO UPDATE SET dim = excluded.dim, @name(vector) = excluded.vector, used_at = excluded.used_at;

-- name: LedgerOld
SELECT model_key, text_hash FROM embedding_ledger WHERE used_at < ? ORDER BY used_at LIMIT ?;

-- name: LedgerDelete
DELETE FROM embedding_ledger WHERE model_key = ? AND used_at < ? AND text_hash IN (@list);

-- ---------------------------------------------------------------- finish, and what goes with other changes

-- name: TaskDocuments
SELECT DISTINCT document_id FROM ingest_task_body WHERE document_id IS NOT NULL AND id IN (@list);

-- name: DocumentsLock
SELECT id, base_id, status, segment_count, latest_task_id, COALESCE(visible_version_id, ''), visible_no, visible_upload_no, last_no, deleted_at
FROM knowledge_document
WHERE id IN (@list)
ORDER BY id
@forupdate;

-- name: VersionsOpen
SELECT v.id, v.task_id, v.document_id, v.no, v.upload_no, v.segment_count,
       CASE WHEN v.collection = b.collection THEN 0 ELSE 1 END, b.closing_until
FROM document_version v
JOIN knowledge_base b ON b.id = v.base_id
WHERE v.state = 'BUILDING' AND v.task_id IN (@list);

-- name: VersionCounts
SELECT version_id, COUNT(*), MIN(segment_index), MAX(segment_index) FROM knowledge_segment WHERE version_id IN (@list) GROUP BY version_id;

-- name: VersionsSupersede
UPDATE document_version
SET state = 'SUPERSEDED', closed_at = ?, updated_at = ?, sweep_at = ?, sweep_pass = 0
WHERE state = 'VISIBLE' AND document_id IN (@list);

-- name: VersionsShow
UPDATE document_version SET state = 'VISIBLE', updated_at = ? WHERE state = 'BUILDING' AND id IN (@list);

-- name: DocumentsShow
UPDATE knowledge_document
SET status = 'READY', updated_at = ?,
    visible_version_id = (SELECT v.id FROM document_version v WHERE v.document_id = knowledge_document.id AND v.state = 'VISIBLE'),
    visible_no = (SELECT v.no FROM document_version v WHERE v.document_id = knowledge_document.id AND v.state = 'VISIBLE'),
    visible_upload_no = (SELECT v.upload_no FROM document_version v WHERE v.document_id = knowledge_document.id AND v.state = 'VISIBLE'),
    segment_count = (SELECT v.segment_count FROM document_version v WHERE v.document_id = knowledge_document.id AND v.state = 'VISIBLE'),
    pages = (SELECT v.pages FROM document_version v WHERE v.document_id = knowledge_document.id AND v.state = 'VISIBLE'),
    title = (SELECT v.title FROM document_version v WHERE v.document_id = knowledge_document.id AND v.state = 'VISIBLE'),
    metadata = (SELECT v.metadata FROM document_version v WHERE v.document_id = knowledge_document.id AND v.state = 'VISIBLE')
WHERE id IN (@list);

-- An older upload's task is cancelled when a newer one is visible; the sweeper does it, this makes it look.
-- name: VersionsOutdated
UPDATE document_version
SET sweep_at = ?
WHERE state = 'BUILDING'
  AND upload_no < (SELECT d.visible_upload_no FROM knowledge_document d WHERE d.id = document_version.document_id)
  AND document_id IN (@list);

-- name: VersionsAbandon
UPDATE document_version
SET state = 'ABANDONED', closed_at = ?, updated_at = ?, sweep_at = ?, sweep_pass = 0
WHERE state = 'BUILDING' AND task_id IN (@list);

-- name: DocumentsSetStatus
UPDATE knowledge_document SET status = ?, updated_at = ? WHERE id IN (@list);

-- ---------------------------------------------------------------- counts

-- name: CountsChange
INSERT INTO document_count_change (base_id, status, documents, segments)
VALUES (@rows:4);

-- name: CountsChanged
SELECT no, base_id, status, documents, segments FROM document_count_change ORDER BY no LIMIT ? @skiplocked;

-- name: CountsAdd
INSERT INTO document_count (base_id, status, documents, segments)
VALUES (@rows:4)
ON CONFLICT (base_id, status) DO UPDATE SET documents = document_count.documents + excluded.documents, segments = document_count.segments + excluded.segments;

-- name: CountsGone
DELETE FROM document_count WHERE base_id = ? AND NOT EXISTS (SELECT 1 FROM knowledge_base b WHERE b.id = document_count.base_id);

-- name: CountsJoined
DELETE FROM document_count_change WHERE no IN (@list);

-- ---------------------------------------------------------------- replay

-- The newest version of each task, open or not: its upload and file.
-- name: VersionsOfTasks
SELECT v.task_id, v.document_id, v.base_id, v.upload_no, v.title, COALESCE(v.metadata, ''), COALESCE(f.id, '')
FROM document_version v
LEFT JOIN stored_file f ON f.id = v.file_id
WHERE v.task_id IN (@list)
ORDER BY v.task_id, v.no;

-- name: VersionsInsert
INSERT INTO document_version (id, document_id, base_id, task_id, file_id, no, upload_no, state, title, created_at, updated_at, sweep_at, metadata)
VALUES (@rows:13);

-- name: MetadataInsert
INSERT INTO document_metadata (version_id, name, value, document_id, base_id)
VALUES (@rows:5);

-- name: DocumentNext
UPDATE knowledge_document SET last_no = ? WHERE id = ?;

-- ---------------------------------------------------------------- rollback

-- The version that a rollback goes back to when none is named, and whose file is kept for it: the last superseded one that differs from
-- the visible one in what its user gave. A version that re-indexing has made of the same bytes does not.
-- name: VersionKept
SELECT v.id, v.no
FROM knowledge_document d
JOIN document_version s ON s.id = d.visible_version_id
JOIN document_version v ON v.document_id = d.id
WHERE d.id = ? AND v.state = 'SUPERSEDED' AND v.file_id <> ''
  AND (v.file_id <> s.file_id OR v.title <> s.title OR COALESCE(v.metadata, '') <> COALESCE(s.metadata, ''))
ORDER BY v.no DESC
LIMIT 1;

-- What a version was made of, as far as it is kept.
-- name: VersionContent
SELECT v.state, v.title, COALESCE(v.metadata, ''), COALESCE(f.id, ''), COALESCE(f.sha256, ''), COALESCE(f.bytes, 0), COALESCE(f.original_name, ''),
       COALESCE(f.media_type, ''), COALESCE(b.payload, '')
FROM document_version v
LEFT JOIN stored_file f ON f.id = v.file_id
LEFT JOIN ingest_task_body b ON b.id = TRIM(v.task_id)
WHERE v.document_id = ? AND v.no = ?;

-- name: DocumentVisibleNo
SELECT visible_no FROM knowledge_document WHERE id = ? AND user_id = ? AND deleted_at IS NULL;

-- ---------------------------------------------------------------- delete

-- name: DocumentReachable
SELECT id FROM knowledge_document WHERE id = ? AND (? = 1 OR user_id = ?) AND deleted_at IS NULL;

-- name: TasksOpen
SELECT b.id
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id)
WHERE t.status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUSPENDED') AND b.document_id IN (@list) ORDER BY b.id;

-- name: DocumentsTombstone
UPDATE knowledge_document
SET deleted_at = ?, updated_at = ?, same_sha256 = NULL, visible_version_id = NULL, visible_no = 0, visible_upload_no = 0,
    segment_count = 0, sweep_at = ?, sweep_pass = 0
WHERE deleted_at IS NULL AND id IN (@list);

-- name: DeletionsOf
SELECT d.id, d.user_id, d.base_id, d.content_sha256, d.bytes, (SELECT COUNT(*) FROM document_version v WHERE v.document_id = d.id)
FROM knowledge_document d
WHERE d.id IN (@list)
ORDER BY d.id;

-- A document that was deleted before, and came back with a restore.
-- name: DeletionsForget
DELETE FROM document_deletion WHERE document_id IN (@list);

-- name: DeletionsInsert
INSERT INTO document_deletion (document_id, user_id, base_id, content_sha256, bytes, versions, segments, vectors, files, deleted_by, deleted_at, sweep_at)
VALUES (@rows:12);

-- name: Deletion
SELECT document_id, user_id, base_id, content_sha256, bytes, versions, segments, vectors, files, deleted_by, deleted_at, removed_at, verified_at
FROM document_deletion
WHERE document_id = ? AND (? = 1 OR user_id = ?);

-- name: DeletionSegments
UPDATE document_deletion SET segments = segments + ? WHERE document_id = ?;

-- name: DeletionVectors
UPDATE document_deletion SET vectors = vectors + ? WHERE document_id = ?;

-- name: DeletionFiles
SELECT files FROM document_deletion WHERE document_id = ?;

-- name: DeletionSetFiles
UPDATE document_deletion SET files = ? WHERE document_id = ?;

-- name: DeletionRemoved
UPDATE document_deletion SET removed_at = ? WHERE document_id = ? AND removed_at IS NULL;

-- name: DeletionsDue
SELECT DISTINCT base_id FROM document_deletion WHERE sweep_at <= ? ORDER BY base_id LIMIT ?;

-- All of a base whose rows, vectors and files were gone before a time, so that one look at its index serves them.
-- name: DeletionsWaiting
SELECT document_id, files FROM document_deletion
WHERE base_id = ? AND verified_at IS NULL AND deleted_at <= ? AND removed_at <= ?
ORDER BY document_id
LIMIT ?;

-- What may be left of a document: nothing. Metadata and names of vectors go before or with its versions.
-- name: DeletionLeft
SELECT 'document' FROM knowledge_document WHERE id = ?
UNION ALL SELECT 'version' FROM document_version WHERE document_id = ?
UNION ALL SELECT 'segment' FROM knowledge_segment WHERE document_id = ?
LIMIT 1;

-- name: DeletionVerified
UPDATE document_deletion SET verified_at = ?, sweep_at = ? WHERE document_id = ? AND verified_at IS NULL;

-- name: DeletionsLater
UPDATE document_deletion SET sweep_at = ? WHERE base_id = ? AND verified_at IS NULL AND sweep_at < ?;

-- ---------------------------------------------------------------- sweep: versions

-- name: VersionsDue
SELECT id, document_id, base_id, state, task_id FROM document_version WHERE sweep_at <= ? ORDER BY sweep_at, id LIMIT ?;

-- name: VersionSweepAt
UPDATE document_version SET sweep_at = ?, sweep_pass = sweep_pass + 1 WHERE id = ? AND state = ?;

-- name: VersionClosed
SELECT state FROM document_version WHERE id = ?;

-- name: VersionMetadataGone
DELETE FROM document_metadata WHERE version_id = ?;

-- name: ClosedRows
SELECT id, vector_id, birth_version_id FROM knowledge_segment WHERE version_id = ? ORDER BY segment_index LIMIT ?;

-- Rows of open or visible versions hold their ids: nobody may delete those vectors.
-- name: IdsHeld
SELECT DISTINCT s.vector_id
FROM knowledge_segment s
JOIN document_version v ON v.id = s.version_id
WHERE v.state IN ('BUILDING', 'VISIBLE') AND s.vector_id IN (@list);

-- name: BirthsOpen
SELECT id FROM document_version WHERE state = 'BUILDING' AND id IN (@list);

-- name: GarbageMark
INSERT INTO vector_garbage (vector_id, base_id, document_id, birth_version_id, marked_at, sweep_at)
VALUES (@rows:6)
ON CONFLICT (vector_id) DO UPDATE SET marked_at = excluded.marked_at, sweep_at = excluded.sweep_at;

-- ---------------------------------------------------------------- sweep: garbage

-- name: GarbageDue
SELECT vector_id, base_id, document_id, birth_version_id, marked_at, sweep_pass
FROM vector_garbage
WHERE sweep_at <= ?
ORDER BY sweep_at, vector_id
LIMIT ?;

-- name: GarbageMarked
UPDATE vector_garbage SET marked_at = ?, sweep_at = ? WHERE marked_at IS NULL AND vector_id IN (@list);

-- name: GarbageLater
UPDATE vector_garbage SET sweep_at = ? WHERE vector_id IN (@list);

-- name: GarbageDeleted
UPDATE vector_garbage SET sweep_pass = 1, sweep_at = ? WHERE marked_at IS NOT NULL AND sweep_pass = 0 AND vector_id IN (@list);

-- name: GarbageGone
DELETE FROM vector_garbage WHERE marked_at IS NOT NULL AND sweep_pass = 1 AND vector_id IN (@list);

-- ---------------------------------------------------------------- sweep: deleted documents

-- name: DocumentsDue
SELECT id, base_id, sweep_pass FROM knowledge_document WHERE sweep_at <= ? ORDER BY sweep_at, id LIMIT ?;

-- name: DocumentTomb
SELECT id FROM knowledge_document WHERE id = ? AND deleted_at IS NOT NULL @forupdate;

-- name: DocumentRows
SELECT id, vector_id, birth_version_id FROM knowledge_segment WHERE document_id = ? LIMIT ?;

-- name: DocumentVersions
SELECT id FROM document_version WHERE document_id = ? ORDER BY id;

-- name: DocumentGarbageLeft
SELECT g.vector_id FROM vector_garbage g JOIN document_version v ON v.id = g.birth_version_id WHERE v.document_id = ? LIMIT 1;

-- name: DocumentSweepLater
UPDATE knowledge_document SET sweep_pass = ?, sweep_at = ? WHERE id = ? AND deleted_at IS NOT NULL AND sweep_pass = ?;

-- name: DocumentGone
DELETE FROM knowledge_document WHERE id = ? AND deleted_at IS NOT NULL AND sweep_pass = ?;

-- name: DocumentVersionsGone
DELETE FROM document_version WHERE document_id = ?;

-- name: DocumentMetadataGone
DELETE FROM document_metadata WHERE version_id IN (SELECT id FROM document_version WHERE document_id = ?);

-- ---------------------------------------------------------------- sweep: files

-- name: DocumentFiles
SELECT DISTINCT file_id FROM document_version WHERE document_id = ? AND file_id <> '' ORDER BY file_id;

-- name: OutdatedFiles
SELECT DISTINCT v.file_id
FROM document_version v
JOIN knowledge_document d ON d.id = v.document_id
WHERE v.document_id = ? AND v.id <> ? AND v.file_id <> '' AND v.state IN ('SUPERSEDED', 'ABANDONED') AND v.upload_no < d.visible_upload_no
ORDER BY v.file_id;

-- name: DocumentUnlink
UPDATE document_version SET file_id = '' WHERE document_id = ? AND file_id IN (@list);

-- name: OutdatedUnlink
UPDATE document_version
SET file_id = ''
WHERE document_id = ? AND id <> ? AND state IN ('SUPERSEDED', 'ABANDONED')
  AND upload_no < (SELECT d.visible_upload_no FROM knowledge_document d WHERE d.id = document_version.document_id)
  AND file_id IN (@list);

-- name: FileLinked
SELECT id FROM document_version WHERE file_id = ? LIMIT 1;

-- name: FileDelete
DELETE FROM stored_file WHERE id = ?;

-- The rows of received files whose COMMIT had no answer; whoever still writes one is waited for.
-- name: FilesHeld
SELECT id FROM stored_file WHERE id IN (@list) ORDER BY id @forupdate;

-- The newest and the oldest stored files: a folder that has any of them is the database's.
-- name: FilesSample
SELECT id FROM (SELECT id FROM stored_file ORDER BY id DESC LIMIT ?) AS newest
UNION
SELECT id FROM (SELECT id FROM stored_file ORDER BY id LIMIT ?) AS oldest;

-- name: FilesKnown
SELECT id FROM stored_file WHERE id IN (@list);

-- A file that has the id of a task was received for it (tasks.Request): an archive, or a file that is looked at.
-- name: FilesOfTasks
SELECT id FROM ingest_task WHERE status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUSPENDED') AND id IN (@list);

-- A version whose stored file's row is lost still needs the file: fsck makes the row again.
-- name: FilesNamed
SELECT file_id FROM document_version WHERE file_id IN (@list);
