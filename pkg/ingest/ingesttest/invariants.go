package ingesttest

import (
	"database/sql"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

// CheckInvariants are those of design D8 and I25 that hold at every moment.
func (w *World) CheckInvariants() {
	w.T.Helper()
	require.Zero(w.T, w.Number(`SELECT COUNT(*) FROM (SELECT document_id FROM document_version WHERE state = 'VISIBLE' GROUP BY document_id HAVING COUNT(*) > 1) x`), "one visible version at most")
	require.Zero(w.T, w.Number(`SELECT COUNT(*) FROM knowledge_document d LEFT JOIN document_version v ON v.id = d.visible_version_id
		WHERE d.visible_no > 0 AND (v.id IS NULL OR v.state <> 'VISIBLE')`), "the document names its visible version")
	require.Zero(w.T, w.Number(`SELECT COUNT(*) FROM document_version v JOIN ingest_task t ON t.id = v.task_id
		WHERE v.state = 'BUILDING' AND t.status IN ('SUCCEEDED', 'DEAD', 'CANCELLED')`), "no BUILDING version without an open task")
	counted, err := sqldb.Texts(w.T.Context(), w.Store.Reader(), `SELECT x.base_id FROM (
		SELECT base_id, status, COUNT(*) AS documents, SUM(segment_count) AS segments FROM knowledge_document WHERE deleted_at IS NULL GROUP BY base_id, status
		UNION ALL SELECT base_id, status, -documents, -segments FROM document_count
		UNION ALL SELECT base_id, status, -documents, -segments FROM document_count_change) x
		GROUP BY x.base_id, x.status HAVING SUM(x.documents) <> 0 OR SUM(x.segments) <> 0`)
	require.NoError(w.T, err)
	require.Empty(w.T, counted, "bases whose documents are counted wrongly (I42)")
	named := map[string]bool{}
	for _, query := range []string{"SELECT vector_id FROM knowledge_segment", "SELECT vector_id FROM vector_garbage"} {
		ids, err := sqldb.Texts(w.T.Context(), w.Store.Reader(), query)
		require.NoError(w.T, err)
		for _, id := range ids {
			named[id] = true
		}
	}
	w.Vectors.mu.Lock()
	defer w.Vectors.mu.Unlock()
	for _, rows := range w.Vectors.Rows {
		for id := range rows {
			require.True(w.T, named[id], "vector %s is named by SQL", id)
		}
	}
	type vector struct {
		id, collection string
		dim            int
	}
	visible, err := sqldb.Collect(w.T.Context(), w.Store.Reader(), func(rows *sql.Rows) (v vector, err error) {
		err = rows.Scan(&v.id, &v.collection, &v.dim)
		v.collection = strings.TrimSpace(v.collection)
		return v, err
	}, `SELECT s.vector_id, COALESCE(NULLIF(b.collection, ''), b.id), b.dim FROM knowledge_segment s
		JOIN document_version v ON v.id = s.version_id JOIN knowledge_base b ON b.id = v.base_id WHERE v.state = 'VISIBLE'`)
	require.NoError(w.T, err)
	for _, v := range visible {
		row, found := w.Vectors.Rows[v.collection][v.id]
		require.True(w.T, found, "a visible segment has its vector in the base's collection")
		if v.dim > 0 {
			require.Len(w.T, row.Values, v.dim, "of the base's model")
		}
	}
}

// CheckCollections is that every collection of the vector store is a base's, or is to be dropped.
func (w *World) CheckCollections() {
	w.T.Helper()
	bases, err := sqldb.Texts(w.T.Context(), w.Store.Reader(), `SELECT id FROM knowledge_base WHERE collection = '' UNION SELECT collection FROM knowledge_base
		UNION SELECT shadow FROM knowledge_base UNION SELECT id FROM retired_collection`)
	require.NoError(w.T, err)
	w.Vectors.mu.Lock()
	defer w.Vectors.mu.Unlock()
	for id := range w.Vectors.Rows {
		require.Contains(w.T, bases, id, "the row of a collection")
	}
}

// CheckFiles is I12: every row of a file has it.
func (w *World) CheckFiles() {
	w.T.Helper()
	paths, err := sqldb.Texts(w.T.Context(), w.Store.Reader(), "SELECT path FROM stored_file")
	require.NoError(w.T, err)
	for _, path := range paths {
		require.FileExists(w.T, filepath.Join(w.Dir, path), "the file of a row")
	}
}
