package fsck_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// fake embeds anything in the base's model.
type fake struct{}

func (fake) Model() ingest.Model { return ingest.Model{Key: model, Dim: dim} }
func (fake) BatchSize() int      { return 1 }

func (fake) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i := range out {
		out[i] = []float32{0, 0, 1, 0}
	}
	return out, nil
}

// ago is before anything that a loop may still be about to do.
func ago() time.Time { return now().Add(-time.Hour) }

// forget makes a task that was promised an hour ago and has no delivery.
func (w *world) forget() {
	id := w.accept(w.id("8002"), "key-8")
	w.state("promised_at = ?, wake_at = ?", id, ago(), ago())
	w.sql(`UPDATE ingest_task_body SET created_at = ? WHERE id = ?`, ago(), id)
}

// abandon makes a task whose lease ended an hour ago.
func (w *world) abandon() {
	id := w.accept(w.id("8002"), "key-8")
	w.claim(id, "w1", "8-0")
	w.sql(`UPDATE ingest_worker SET lease_until = ?`, ago())
}

// claimed is the time of a task's first claim.
func (w *world) claimed(task string) time.Time {
	log, err := w.store.Transitions(w.t.Context(), taskstate.System(), task, 0, 0)
	require.NoError(w.t, err)
	return log[1].CreatedAt.Add(time.Microsecond)
}

// pend adds a pending delivery.
func (w *world) pend(p ingestq.Unacked) {
	p.Group = "g"
	w.queue.state.Pending = append(w.queue.state.Pending, p)
}

// read returns one text of the database.
func (w *world) read(query string, args ...any) (out string) {
	require.NoError(w.t, w.store.Reader().QueryRowContext(w.t.Context(), query, args...).Scan(&out))
	return out
}

// vector is one of the good document's.
func (w *world) vector() string {
	return w.read(`SELECT vector_id FROM knowledge_segment WHERE version_id = (SELECT id FROM document_version WHERE task_id = ?) AND segment_index = 1`, w.good)
}

// goodDocument is the good task's.
func (w *world) goodDocument() string {
	return w.read(`SELECT document_id FROM ingest_task WHERE id = ?`, w.good)
}

// stray writes a vector that no row names, where no tombstone could explain it.
func (w *world) stray() {
	w.sql(`DELETE FROM document_deletion WHERE document_id = ?`, tomb)
	w.sql(`DELETE FROM knowledge_document WHERE id = ?`, tomb)
	require.NoError(w.t, w.vectors.Upsert(w.t.Context(), base, []ingest.Vector{{ID: hash("stray"), DocumentID: tomb, Birth: tomb, Values: []float32{1, 0, 0, 0}}}))
}

// secondVersion gives the good document another version of the same task.
func (w *world) secondVersion(state string) {
	at := now()
	w.sql(`INSERT INTO document_version (id, document_id, base_id, task_id, file_id, no, upload_no, state, title, created_at, updated_at, sweep_at)
		VALUES (?, ?, ?, ?, '', 2, 2, ?, 't', ?, ?, ?)`, w.id("8004"), w.goodDocument(), base, w.good, state, at, at, at)
}

// hide takes the good document's visible version away without another one.
func (w *world) hide() {
	w.sql(`UPDATE document_version SET state = 'SUPERSEDED', closed_at = ? WHERE task_id = ?`, now(), w.good)
	w.sql(`UPDATE knowledge_document SET visible_version_id = NULL, visible_no = 0, status = 'FAILED' WHERE latest_task_id = ?`, w.good)
}

// hit changes the first search in the client log.
func (w *world) hit(f func(r *fsck.ClientRecord)) {
	for i := range w.client {
		if w.client[i].Op == fsck.OpSearch {
			f(&w.client[i])
			return
		}
	}
}

// delete says that the good document was deleted an hour before it was found.
func (w *world) delete() {
	w.client = append(w.client, fsck.ClientRecord{Op: fsck.OpDelete, User: "u", Outcome: fsck.OutcomeOK, Status: 204, Document: w.goodDocument(), Ended: ago()})
}

// event is the n-th that the good task's watcher saw.
func (w *world) event(n int) *fsck.ClientRecord {
	for i := range w.client {
		if w.client[i].Op == fsck.OpEvent && w.client[i].Task == w.good {
			if n--; n < 0 {
				return &w.client[i]
			}
		}
	}
	return nil
}

// outage says that the database was killed at a time and was back five seconds later.
func (w *world) outage(at time.Time) {
	w.client = append(w.client, fsck.ClientRecord{Op: fsck.OpOutage, Outcome: fsck.OutcomeOK, Began: at, Ended: at.Add(5 * time.Second)})
}

// drop takes the n-th event away.
func (w *world) drop(n int) { w.event(n).Op = fsck.OpRead }
