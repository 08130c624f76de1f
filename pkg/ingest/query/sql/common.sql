-- Reads of documents, bases and segments. Fragments that begin with AND are appended to a list's statement.

-- name: BaseList
SELECT b.id, b.user_id, b.name, b.model_key, b.dim, b.collection, b.search_mode, b.chunking, b.metadata_schema, b.created_at, b.updated_at
  FROM knowledge_base b
 WHERE b.deleted_at IS NULL

-- name: BaseOwner
   AND (b.user_id = ?)

-- name: BaseText
   AND LOWER(b.name) LIKE ? ESCAPE '!'

-- name: BaseInBase
   AND b.id = ?

-- name: BaseStatuses
   AND EXISTS (SELECT 1 FROM knowledge_document d WHERE d.base_id = b.id AND d.deleted_at IS NULL AND d.status IN (@list))

-- name: BaseStage
   AND EXISTS (SELECT 1
                 FROM knowledge_document d
                 JOIN ingest_task_state t ON t.id = @rawid(d.latest_task_id)
                WHERE d.base_id = b.id AND d.deleted_at IS NULL AND t.stage = ?)

-- name: BaseMadeAfter
   AND b.created_at > ?

-- name: BaseMadeBefore
   AND b.created_at < ?

-- name: BaseChangedAfter
   AND b.updated_at > ?

-- name: BaseChangedBefore
   AND b.updated_at < ?

-- name: BaseAfterUpdatedDesc
   AND (b.updated_at < ? OR (b.updated_at = ? AND b.id < ?))

-- name: BaseOrderUpdatedDesc
 ORDER BY b.updated_at DESC, b.id DESC
 LIMIT ?

-- name: BaseAfterUpdated
   AND (b.updated_at > ? OR (b.updated_at = ? AND b.id > ?))

-- name: BaseOrderUpdated
 ORDER BY b.updated_at, b.id
 LIMIT ?

-- name: BaseAfterCreatedDesc
   AND (b.created_at < ? OR (b.created_at = ? AND b.id < ?))

-- name: BaseOrderCreatedDesc
 ORDER BY b.created_at DESC, b.id DESC
 LIMIT ?

-- name: BaseAfterCreated
   AND (b.created_at > ? OR (b.created_at = ? AND b.id > ?))

-- name: BaseOrderCreated
 ORDER BY b.created_at, b.id
 LIMIT ?

-- name: BaseDocuments
SELECT base_id, status, documents, segments FROM document_count WHERE base_id IN (@list)
UNION ALL
SELECT base_id, status, documents, segments FROM document_count_change WHERE base_id IN (@list)

-- name: DocumentColumns
SELECT d.id, d.user_id, d.base_id, b.name, d.title, d.file_name, d.media_type, d.status, d.bytes,
       d.content_sha256, d.visible_no, d.segment_count, d.pages, d.latest_task_id, d.created_at, d.updated_at,
       COALESCE(d.metadata, ''), COALESCE(d.parent_id, ''), d.parent_no

-- name: DocumentList
-- The bases are looked up one by one: MariaDB keeps a small table of them in memory, and then sorts all documents instead of reading
-- a page of them in the order of an index.
@include(DocumentColumns)
  FROM knowledge_document d
  @thenjoin knowledge_base b @force(PRIMARY) ON b.id = d.base_id
 WHERE d.deleted_at IS NULL

-- name: DocumentScan
-- Of all documents those that pass what no index knows. MariaDB reads the table from its beginning to its end; in the order of an index,
-- which it would choose for the few rows of a page, it looks up one row after the other, ten times as long where few pass.
@include(DocumentColumns)
  FROM knowledge_document d @force(PRIMARY)
  @thenjoin knowledge_base b @force(PRIMARY) ON b.id = d.base_id
 WHERE d.deleted_at IS NULL

-- name: DocumentID
   AND d.id = ?

-- name: DocumentOwner
   AND (d.user_id = ?)

-- name: DocumentInBase
   AND d.base_id = ?

-- name: DocumentParent
   AND d.parent_id = ?

-- name: DocumentStatuses
   AND d.status IN (@list)

-- name: DocumentStage
   AND EXISTS (SELECT 1 FROM ingest_task_state t WHERE t.id = @rawid(d.latest_task_id) AND t.stage = ?)

-- name: DocumentText
   AND (LOWER(d.title) LIKE ? ESCAPE '!' OR LOWER(d.file_name) LIKE ? ESCAPE '!')

-- name: DocumentMadeAfter
   AND d.created_at > ?

-- name: DocumentMadeBefore
   AND d.created_at < ?

-- name: DocumentChangedAfter
   AND d.updated_at > ?

-- name: DocumentChangedBefore
   AND d.updated_at < ?

-- name: DocumentAfterUpdatedDesc
   AND (d.updated_at < ? OR (d.updated_at = ? AND d.id < ?))

-- name: DocumentAfterUpdated
   AND (d.updated_at > ? OR (d.updated_at = ? AND d.id > ?))

-- name: DocumentAfterCreatedDesc
   AND (d.created_at < ? OR (d.created_at = ? AND d.id < ?))

-- name: DocumentAfterCreated
   AND (d.created_at > ? OR (d.created_at = ? AND d.id > ?))

-- name: DocumentOrderUpdatedDesc
 ORDER BY d.updated_at DESC, d.id DESC
 LIMIT ?

-- name: DocumentOrderUpdated
 ORDER BY d.updated_at, d.id
 LIMIT ?

-- name: DocumentOrderCreatedDesc
 ORDER BY d.created_at DESC, d.id DESC
 LIMIT ?

-- name: DocumentOrderCreated
 ORDER BY d.created_at, d.id
 LIMIT ?

-- name: SegmentPage
SELECT s.segment_index, s.content, s.page, s.page_breaks, s.heading_path, s.byte_start, s.byte_end, s.tokens
  FROM knowledge_segment s
  JOIN knowledge_document d ON d.visible_version_id = s.version_id
 WHERE d.id = ? AND s.segment_index > ?
 ORDER BY s.segment_index
 LIMIT ?

-- name: VersionPage
SELECT v.no, v.state, v.title, v.task_id, v.model_key, v.extractor, v.splitter, v.segment_count, v.pages,
       CASE WHEN f.id IS NULL THEN 0 ELSE 1 END, v.created_at, v.closed_at
  FROM document_version v
  LEFT JOIN stored_file f ON f.id = v.file_id
 WHERE v.document_id = ? AND v.no < ?
 ORDER BY v.no DESC
 LIMIT ?

-- name: HitColumns
CASE WHEN d.visible_version_id = s.version_id AND d.deleted_at IS NULL THEN 1 ELSE 0 END,
       d.id, d.title, d.file_name, s.version_id, s.version, s.segment_index, s.page, s.page_breaks, s.heading_path, s.content,
       COALESCE(s.around_from, 0), COALESCE(s.around_to, 0), COALESCE(d.metadata, ''), COALESCE(d.parent_id, '')

-- name: HitDocuments
-- What belongs to a segment. Rows of versions closed since the search began come too: they say that a switch happened meanwhile.
  @thenjoin knowledge_document d @force(PRIMARY) ON d.id = s.document_id
  @thenjoin document_version v @force(PRIMARY) ON v.id = s.version_id
 WHERE d.base_id = ?
   AND (d.visible_version_id = s.version_id OR v.closed_at > ?)

-- name: SearchJoin
-- Every vector id that the store named, joined anew with what is visible now (design D12).
-- The segments lead, each found by its key. Left to itself, MariaDB reads all segments of all versions while its statistics are old.
SELECT s.vector_id, @include(HitColumns)
  FROM knowledge_segment s @force(ix_segment_vector)
@include(HitDocuments)
   AND s.vector_id IN (@list)

-- name: TextJoin
-- Every segment that the text index named, joined with what is visible now, and the first one of each version that an earlier
-- statement took hits from.
-- The segments lead here too: MariaDB would compare all segments of these versions with each of the places.
SELECT s.text_hash, @include(HitColumns)
  FROM knowledge_segment s @force(uq_segment_index)
@include(HitDocuments)
   AND (@any s.version_id = ? AND s.segment_index = ?)

-- name: SearchAround
-- The segments that hits show around them, in the order of their documents' text. They lead here as well.
SELECT s.version_id, s.segment_index, s.content, s.byte_start, s.byte_end
  FROM knowledge_segment s @force(uq_segment_index)
  @thenjoin knowledge_document d @force(PRIMARY) ON d.id = s.document_id
 WHERE d.visible_version_id = s.version_id
   AND (@any s.version_id = ? AND s.segment_index BETWEEN ? AND ?)
 ORDER BY s.version_id, s.segment_index

-- name: SearchBirths
-- The versions that the visible vectors of a base were born in.
SELECT DISTINCT s.birth_version_id
  FROM knowledge_document d
  JOIN knowledge_segment s ON s.version_id = d.visible_version_id
 WHERE d.base_id = ? AND d.deleted_at IS NULL

-- name: SearchVisible
-- Some of the visible segments of a base: each has a vector, or the store has lost it.
SELECT s.vector_id
  FROM knowledge_document d
  JOIN knowledge_segment s ON s.version_id = d.visible_version_id
 WHERE d.base_id = ? AND d.deleted_at IS NULL

-- name: SearchVersions
-- The visible versions of a base.
SELECT d.visible_version_id
  FROM knowledge_document d
 WHERE d.base_id = ? AND d.deleted_at IS NULL AND d.visible_version_id IS NOT NULL

-- name: DocumentIDs
   AND d.id IN (@list)

-- name: DocumentMediaTypes
   AND d.media_type IN (@list)

-- name: DocumentsByMetadata
-- The index has the documents; rows of versions that are not visible are there too. MetadataAnyOf or MetadataBetween ends it.
   AND (d.id, d.visible_version_id) IN (SELECT m.document_id, m.version_id
                                          FROM document_metadata m
                                         WHERE m.base_id = ?

-- name: DocumentHasMetadata
-- SQLite would make the list above for each statement, however few its rows are.
   AND EXISTS (SELECT 1 FROM document_metadata m WHERE m.version_id = d.visible_version_id

-- name: MetadataAnyOf
   AND m.name = ? AND m.value IN (@list))

-- name: MetadataBetween
   AND m.name = ? AND m.value BETWEEN ? AND ?)

-- name: SearchLimit
 LIMIT ?

-- name: RecentChanges
-- Bounded: at most the newest 10,000 calls are looked at.
SELECT @include(Minute), r.to_status, SUM(r.tasks)
  FROM (SELECT to_status, tasks, created_at
          FROM ingest_task_call
         WHERE reason <> 'SILENT'
         ORDER BY no DESC
         LIMIT 10000) r
 WHERE r.created_at > ?
 GROUP BY @include(Minute), r.to_status
 ORDER BY 1

-- name: UncopiedCount
SELECT COUNT(*)
FROM mirror_failure f
JOIN ingest_task_state t ON t.id = @rawid(f.task_id)
WHERE t.status IN ('QUEUED', 'RUNNING', 'RETRYING')
