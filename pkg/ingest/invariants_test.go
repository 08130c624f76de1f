package ingest

import (
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// checkInvariants are those of design D8 and I25 that hold at every moment.
func (w *world) checkInvariants() {
	w.t.Helper()
	require.Zero(w.t, w.number(`SELECT COUNT(*) FROM (SELECT document_id FROM document_version WHERE state = 'VISIBLE' GROUP BY document_id HAVING COUNT(*) > 1) x`), "one visible version at most")
	require.Zero(w.t, w.number(`SELECT COUNT(*) FROM knowledge_document d LEFT JOIN document_version v ON v.id = d.visible_version_id
		WHERE d.visible_no > 0 AND (v.id IS NULL OR v.state <> 'VISIBLE')`), "the document names its visible version")
	require.Zero(w.t, w.number(`SELECT COUNT(*) FROM document_version v JOIN ingest_task t ON t.id = v.task_id
		WHERE v.state = 'BUILDING' AND t.status IN ('SUCCEEDED', 'DEAD', 'CANCELLED')`), "no BUILDING version without an open task")
	named := map[string]bool{}
	for _, query := range []string{"SELECT vector_id FROM knowledge_segment", "SELECT vector_id FROM vector_garbage"} {
		ids, err := column(w.t.Context(), w.store.Reader(), query)
		require.NoError(w.t, err)
		for _, id := range ids {
			named[id] = true
		}
	}
	w.vectors.mu.Lock()
	defer w.vectors.mu.Unlock()
	for _, rows := range w.vectors.rows {
		for id := range rows {
			require.True(w.t, named[id], "vector %s is named by SQL", id)
		}
	}
	visible, err := column(w.t.Context(), w.store.Reader(), `SELECT s.vector_id FROM knowledge_segment s JOIN document_version v ON v.id = s.version_id WHERE v.state = 'VISIBLE'`)
	require.NoError(w.t, err)
	for _, id := range visible {
		found := false
		for _, rows := range w.vectors.rows {
			_, here := rows[id]
			found = found || here
		}
		require.True(w.t, found, "a visible segment has its vector")
	}
}

// checkCollections is that every collection of the vector store is a base's.
func (w *world) checkCollections() {
	w.t.Helper()
	bases, err := column(w.t.Context(), w.store.Reader(), "SELECT id FROM knowledge_base")
	require.NoError(w.t, err)
	w.vectors.mu.Lock()
	defer w.vectors.mu.Unlock()
	for id := range w.vectors.rows {
		require.Contains(w.t, bases, id, "the row of a collection")
	}
}

// checkFiles is I12: every row of a file has it.
func (w *world) checkFiles() {
	w.t.Helper()
	paths, err := column(w.t.Context(), w.store.Reader(), "SELECT path FROM stored_file")
	require.NoError(w.t, err)
	for _, path := range paths {
		require.FileExists(w.t, filepath.Join(w.dir, path), "the file of a row")
	}
}
