-- What the checker reads. It locks nothing and writes nothing but what Repair does; pages go by primary key.

-- name: Tasks
SELECT id, user_id, COALESCE(document_id, ''), type, channel, status, attempt_count, max_attempts, crash_count, fence,
       next_retry_at, COALESCE(last_error, ''), COALESCE(error_message, ''), lease_owner, wake_at, promised_at,
       promise_count, dlq_state, delivery, COALESCE(idempotency_key, ''), request_hash, created_at, updated_at
FROM ingest_task
WHERE id > ?
ORDER BY id
LIMIT ?

-- name: TasksByID
SELECT id, user_id, COALESCE(document_id, ''), type, channel, status, attempt_count, max_attempts, crash_count, fence,
       next_retry_at, COALESCE(last_error, ''), COALESCE(error_message, ''), lease_owner, wake_at, promised_at,
       promise_count, dlq_state, delivery, COALESCE(idempotency_key, ''), request_hash, created_at, updated_at
FROM ingest_task
WHERE id IN (@list)

-- The log itself and not its view, which shows no log of a task that has no row.
-- name: LogOf
SELECT l.call_no, @textid(l.task_id), COALESCE(c.from_status, ''), c.to_status, c.reason,
       COALESCE(l.attempt_count, c.attempt_count), COALESCE(l.crash_count, c.crash_count), COALESCE(l.fence, c.fence), c.timeline,
       COALESCE(l.actor, c.actor), COALESCE(l.message, ''),
       CASE c.to_status WHEN 'RUNNING' THEN COALESCE(l.lease_expires_at, c.lease_expires_at) END, l.next_retry_at, COALESCE(l.delivery, ''), c.created_at
FROM ingest_task_log l
JOIN ingest_task_call c ON c.no = l.call_no

-- name: Logs
@include(LogOf)
WHERE l.task_id >= @rawid(?) AND l.task_id <= @rawid(?)
ORDER BY l.task_id, l.call_no

-- name: LogAfter
@include(LogOf)
WHERE l.task_id = @rawid(?) AND l.call_no > ?
ORDER BY l.call_no

-- Calls that left tasks in a status in which they wake.
-- name: Wakes
SELECT to_status, wake_at, ids
FROM ingest_task_call
WHERE wake_at < @never

-- name: Awaken
INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, wake_at, tasks, ids, created_at)
SELECT ?, t.status, t.status, 'SILENT', (SELECT value FROM timeline WHERE id = 1), 'system:fsck', t.wake_at, 1, ?, t.updated_at
FROM ingest_task t
WHERE t.id = ? AND t.wake_at < @never

-- The calls since a look with the tasks that they moved, for the check of a sample.
-- name: Moved
SELECT no, ids
FROM ingest_task_call
WHERE no > ? AND reason <> 'SILENT'
ORDER BY no
LIMIT ?

-- name: LastCall
SELECT COALESCE(MAX(no), 0)
FROM ingest_task_call

-- A death of one fence: the log is append-only, so whoever asks again sees what came after the first look.
-- name: LettersDropped
-- An operator's drop of a dead letter, noted before its entry went.
SELECT COUNT(*)
FROM audit_event
WHERE action = 'letter_drop' AND target = ?

-- name: Deaths
SELECT COUNT(*)
FROM ingest_task_log l
JOIN ingest_task_call c ON c.no = l.call_no
WHERE l.task_id = @rawid(?) AND COALESCE(l.fence, c.fence) = ? AND c.to_status = 'DEAD';

-- name: DeathsBefore
@include(Deaths) AND c.created_at <= ?;

-- The first claim of each task with what brought it, for the order in a partition.
-- name: Beginnings
SELECT t.document_id, t.id, l.delivery, l.created_at
FROM ingest_task_body t
  JOIN ingest_task_transition l ON l.task_id = t.id
WHERE l.to_status = 'RUNNING' AND l.fence = 1 AND t.document_id IS NOT NULL AND l.delivery LIKE '%:%'
ORDER BY t.document_id, l.id

-- Tasks of which a mirror says that it could not copy them.
-- name: MirrorFailures
SELECT task_id
FROM mirror_failure
WHERE task_id IN (@list)

-- name: Counts
SELECT status, COUNT(*)
FROM ingest_task_state
GROUP BY status

-- Tasks as they are, what is counted of them, and calls that are not counted yet.
-- name: Counted
SELECT 'are', b.user_id, COALESCE(b.knowledge_base_id, ''), t.status, '', COUNT(*), ''
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id)
GROUP BY b.user_id, COALESCE(b.knowledge_base_id, ''), t.status
UNION ALL
SELECT 'owner', user_id, knowledge_base_id, status, '', n, '' FROM ingest_task_owner
UNION ALL
SELECT 'status', '', '', status, '', n, '' FROM ingest_task_count
UNION ALL
SELECT 'call', '', '', to_status, COALESCE(from_status, ''), tasks, COALESCE(owners, '')
FROM ingest_task_call
WHERE wake_at < @never

-- Live documents as they are, and what is counted of them.
-- name: CountedDocuments
SELECT 'are', base_id, status, COUNT(*), COALESCE(SUM(segment_count), 0)
FROM knowledge_document
WHERE deleted_at IS NULL
GROUP BY base_id, status
UNION ALL
SELECT 'said', base_id, status, documents, segments FROM document_count
UNION ALL
SELECT 'said', base_id, status, documents, segments FROM document_count_change

-- A task among the failures that does not fail is taken off them while its state is locked.
-- name: FailureLock
SELECT 1 FROM ingest_task_state WHERE id = @rawid(?) @forupdate

-- name: FailureWrong
SELECT f.failure_id
FROM task_failure f
WHERE f.task_id = ? AND NOT EXISTS (SELECT 1 FROM ingest_task t WHERE t.id = f.task_id AND t.last_error IS NOT NULL AND t.status <> 'CANCELLED')

-- name: FailureGone
DELETE FROM task_failure WHERE task_id = ?

-- name: FailureGroupLess
UPDATE failure_group SET tasks = tasks - 1 WHERE id = ?

-- Adds what the counts lack. One statement reads and writes, so documents may change meanwhile.
-- name: MendCounts
INSERT INTO document_count_change (base_id, status, documents, segments)
SELECT x.base_id, x.status, SUM(x.documents), SUM(x.segments)
FROM (SELECT base_id, status, COUNT(*) AS documents, SUM(segment_count) AS segments FROM knowledge_document WHERE deleted_at IS NULL GROUP BY base_id, status
      UNION ALL
      SELECT base_id, status, -documents, -segments FROM document_count
      UNION ALL
      SELECT base_id, status, -documents, -segments FROM document_count_change) x
GROUP BY x.base_id, x.status
HAVING SUM(x.documents) <> 0 OR SUM(x.segments) <> 0

-- name: Bases
SELECT id, dim, CASE collection WHEN '' THEN id ELSE collection END, CASE WHEN deleted_at IS NULL THEN 0 ELSE 1 END
FROM knowledge_base
WHERE id > ?
ORDER BY id
LIMIT ?

-- name: Documents
SELECT d.id, d.user_id, d.base_id, d.status, COALESCE(d.visible_version_id, ''), d.visible_no, d.segment_count, d.content_sha256,
       COALESCE(d.same_sha256, ''), d.last_upload_no, CASE WHEN d.deleted_at IS NULL THEN 0 ELSE 1 END, d.sweep_pass, d.updated_at,
       COALESCE(b.user_id, ''), d.latest_task_id, COALESCE(d.parent_id, ''), COALESCE(p.user_id, ''), COALESCE(p.base_id, ''),
       CASE WHEN p.deleted_at IS NULL THEN 0 ELSE 1 END, COALESCE(p.sweep_pass, 0)
FROM knowledge_document d
LEFT JOIN knowledge_base b ON b.id = d.base_id
LEFT JOIN knowledge_document p ON p.id = d.parent_id
WHERE d.id > ?
ORDER BY d.id
LIMIT ?

-- name: DocumentsByID
SELECT d.id, d.user_id, d.base_id, d.status, COALESCE(d.visible_version_id, ''), d.visible_no, d.segment_count, d.content_sha256,
       COALESCE(d.same_sha256, ''), d.last_upload_no, CASE WHEN d.deleted_at IS NULL THEN 0 ELSE 1 END, d.sweep_pass, d.updated_at,
       COALESCE(b.user_id, ''), d.latest_task_id, COALESCE(d.parent_id, ''), COALESCE(p.user_id, ''), COALESCE(p.base_id, ''),
       CASE WHEN p.deleted_at IS NULL THEN 0 ELSE 1 END, COALESCE(p.sweep_pass, 0)
FROM knowledge_document d
LEFT JOIN knowledge_base b ON b.id = d.base_id
LEFT JOIN knowledge_document p ON p.id = d.parent_id
WHERE d.id IN (@list)

-- name: VersionsOf
SELECT v.id, v.document_id, v.base_id, v.task_id, v.no, v.state,
       CASE v.state WHEN 'VISIBLE' THEN COALESCE(NULLIF(b.model_key, ''), v.model_key) ELSE v.model_key END,
       CASE v.state WHEN 'VISIBLE' THEN COALESCE(NULLIF(b.dim, 0), v.dim) ELSE v.dim END,
       COALESCE(NULLIF(b.collection, ''), v.base_id), v.extractor, v.splitter, v.segment_count,
       v.created_at, v.updated_at, v.closed_at, v.sweep_pass, COALESCE(t.status, ''), COALESCE(f.id, ''), COALESCE(f.sha256, ''),
       v.file_id, v.upload_no, COALESCE(t.user_id, ''), COALESCE(f.user_id, ''),
       CASE v.state WHEN 'VISIBLE' THEN COALESCE(v.metadata, '') ELSE '' END
FROM document_version v
LEFT JOIN knowledge_base b ON b.id = v.base_id
LEFT JOIN ingest_task t ON t.id = TRIM(v.task_id)
LEFT JOIN stored_file f ON f.id = v.file_id
WHERE v.document_id IN (@list)
ORDER BY v.document_id, v.no

-- name: MetadataOf
SELECT version_id, name, value, document_id, base_id
FROM document_metadata
WHERE version_id IN (@list)

-- name: SomeVisibleVectors
SELECT s.vector_id
FROM knowledge_document d
JOIN knowledge_segment s ON s.version_id = d.visible_version_id
WHERE d.base_id = ? AND d.deleted_at IS NULL
LIMIT ?

-- name: StillVisible
SELECT s.vector_id
FROM knowledge_segment s
JOIN knowledge_document d ON d.visible_version_id = s.version_id
WHERE d.base_id = ? AND d.deleted_at IS NULL AND s.vector_id IN (@list)

-- name: SegmentsOf
SELECT segment_index, text_hash, vector_id, birth_version_id, page, heading_path, byte_start, byte_end, tokens, content
FROM knowledge_segment
WHERE version_id = ?
ORDER BY segment_index

-- name: SegmentTexts
SELECT vector_id, text_hash, birth_version_id, content
FROM knowledge_segment
WHERE version_id = ? AND vector_id IN (@list)

-- name: RowsLeft
SELECT COUNT(*)
FROM knowledge_segment
WHERE document_id = ?

-- name: OpenTasksOf
SELECT COUNT(*)
FROM ingest_task_body b
JOIN ingest_task_state t ON t.id = @rawid(b.id)
WHERE b.document_id = ? AND t.status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUSPENDED')

-- A vector may be in the store while a row of any version, or the garbage, names it: closed versions keep their rows until
-- their vectors were deleted twice.
-- name: VectorsOfRows
SELECT vector_id
FROM knowledge_segment
WHERE vector_id IN (@list)

-- name: VectorsOfGarbage
SELECT vector_id
FROM vector_garbage
WHERE vector_id IN (@list)

-- name: Tombstones
SELECT COUNT(*)
FROM knowledge_document
WHERE base_id = ? AND deleted_at IS NOT NULL

-- name: Files
SELECT id, sha256, bytes, path
FROM stored_file
WHERE id > ?
ORDER BY id
LIMIT ?

-- name: FileByID
SELECT id, sha256, bytes, path
FROM stored_file
WHERE id = ?

-- What may name a file of the upload folder: its own row, or a version whose file's row is lost.
-- name: FilesOfRows
SELECT path
FROM stored_file
WHERE id IN (@list)

-- name: FilesOfTasks
SELECT id FROM ingest_task WHERE status IN ('QUEUED', 'RUNNING', 'RETRYING', 'SUSPENDED') AND id IN (@list);

-- name: FilesOfVersions
SELECT file_id
FROM document_version
WHERE file_id IN (@list)

-- What Repair reads and writes of rows.
-- name: UploadOf
SELECT COALESCE(payload, '')
FROM ingest_task_body
WHERE id = ?

-- name: FileInsert
INSERT INTO stored_file (id, user_id, sha256, bytes, original_name, media_type, path, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: DocumentOwner
UPDATE knowledge_document
SET user_id = ?
WHERE id = ? AND user_id = ? AND deleted_at IS NULL

-- name: DocumentBytes
UPDATE knowledge_document
SET content_sha256 = ?,
    same_sha256 = CASE WHEN same_sha256 IS NULL THEN NULL ELSE ? END
WHERE id = ? AND content_sha256 = ? AND latest_task_id = ? AND deleted_at IS NULL

-- The sweep of a closed version waits for it, or has taken its rows.
-- name: VersionVisible
SELECT id
FROM document_version
WHERE id = ? AND state = 'VISIBLE' @forupdate

-- name: MetadataGone
DELETE FROM document_metadata
WHERE version_id = ?

-- name: MetadataInsert
INSERT INTO document_metadata (version_id, name, value, document_id, base_id)
VALUES (@rows:5)

-- name: LedgerFind
SELECT text_hash, dim, @name(vector)
FROM embedding_ledger
WHERE model_key = ? AND text_hash IN (@list)


-- name: Events
SELECT seq, message_key, status, lease, next_retry_at, last_error, wake_at, created_at, sent_at
FROM outbox_event
WHERE seq > ?
ORDER BY seq
LIMIT ?

-- name: EventsOf
SELECT status, payload, sent_at
FROM outbox_event
WHERE message_key = ?
ORDER BY seq

-- The users of each table with rows of users.

-- name: UsersOfKeys
SELECT DISTINCT user_id
FROM api_key

-- name: UsersOfTasks
SELECT DISTINCT user_id
FROM ingest_task_body

-- name: UsersOfBases
SELECT DISTINCT user_id
FROM knowledge_base

-- name: UsersOfDocuments
SELECT DISTINCT user_id
FROM knowledge_document

-- name: UsersOfFiles
SELECT DISTINCT user_id
FROM stored_file

-- name: UsersOfDeletions
SELECT DISTINCT user_id
FROM document_deletion

-- name: UsersOfRequests
SELECT DISTINCT user_id
FROM upload_request

-- Deletions that do not fit: of documents without a receipt, of receipts that say what is not so, and how many there are. Deletions
-- before migration 20 have none.
-- name: Receipts
SELECT 'none', d.id, 0
FROM knowledge_document d
WHERE d.deleted_at > (SELECT applied_at FROM schema_migrations WHERE version = 20)
  AND NOT EXISTS (SELECT 1 FROM document_deletion r WHERE r.document_id = d.id)
UNION ALL
SELECT 'left', r.document_id, 0
FROM document_deletion r
WHERE r.removed_at IS NOT NULL
  AND (EXISTS (SELECT 1 FROM knowledge_document d WHERE d.id = r.document_id)
    OR EXISTS (SELECT 1 FROM document_version v WHERE v.document_id = r.document_id)
    OR EXISTS (SELECT 1 FROM knowledge_segment s WHERE s.document_id = r.document_id))
UNION ALL
SELECT 'unsaid', r.document_id, 0
FROM document_deletion r
WHERE r.removed_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM knowledge_document d WHERE d.id = r.document_id AND d.deleted_at IS NOT NULL)
UNION ALL
SELECT 'order', r.document_id, 0
FROM document_deletion r
WHERE r.removed_at < r.deleted_at OR r.verified_at < r.removed_at OR r.verified_at IS NOT NULL AND r.removed_at IS NULL
UNION ALL
SELECT 'all', '', COUNT(*)
FROM document_deletion

-- Tasks of workflows with the status of their runs, and runs that are of none; 1: with the same result.
-- name: Runs
SELECT t.id, t.status, COALESCE(r.status, ''), CASE WHEN COALESCE(t.result, '') = COALESCE(r.result, '') THEN 1 ELSE 0 END
FROM ingest_task t
LEFT JOIN workflow_runs r ON r.task_id = t.id
WHERE t.type = 'workflow.execute'
UNION ALL
SELECT r.task_id, '', r.status, 1
FROM workflow_runs r
WHERE NOT EXISTS (SELECT 1 FROM ingest_task_body b WHERE b.id = r.task_id AND b.type = 'workflow.execute')

-- Rows of failures that do not fit: tasks that are counted and do not fail, tasks that failed since failures are counted and are not, and
-- groups whose count is another.
-- name: Failures
SELECT 'counted', f.task_id, 1, 0
FROM task_failure f
WHERE NOT EXISTS (
  SELECT 1 FROM ingest_task t
  WHERE t.id = f.task_id AND t.last_error IS NOT NULL AND t.status <> 'CANCELLED')
UNION ALL
SELECT 'fails', t.id, 0, 1
FROM ingest_task t
WHERE t.last_error IS NOT NULL AND t.status <> 'CANCELLED'
  AND NOT EXISTS (SELECT 1 FROM task_failure f WHERE f.task_id = t.id)
  AND EXISTS (
    SELECT 1 FROM ingest_task_transition l
    WHERE l.task_id = t.id AND l.reason IN ('FAILED', 'EXHAUSTED', 'PERMANENT', 'STALLED', 'THROTTLED', 'crash_limit')
      AND l.created_at > (SELECT applied_at FROM schema_migrations WHERE version = 26))
UNION ALL
SELECT 'group', g.id, g.tasks, COUNT(f.task_id)
FROM failure_group g
LEFT JOIN task_failure f ON f.failure_id = g.id
GROUP BY g.id, g.tasks
HAVING g.tasks <> COUNT(f.task_id)
UNION ALL
SELECT 'group', f.failure_id, 0, COUNT(*)
FROM task_failure f
WHERE NOT EXISTS (SELECT 1 FROM failure_group g WHERE g.id = f.failure_id)
GROUP BY f.failure_id
UNION ALL
SELECT 'all', '', COUNT(*), COUNT(*)
FROM ingest_task_body

-- name: Kinds
SELECT 'task', id FROM ingest_task_body WHERE id IN (@list)
UNION ALL
SELECT 'document', id FROM knowledge_document WHERE id IN (@list)
UNION ALL
SELECT 'base', id FROM knowledge_base WHERE id IN (@list)
