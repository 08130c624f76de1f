package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// switchRest is how long the sweeper leaves a version alone after it was superseded:
// searches that began before still join its rows (design D12), and a burst of uploads is swept once.
const switchRest = 60 * time.Second

// lockedDocument is what decisions need to know of a document; its row is locked.
type lockedDocument struct {
	id, visible              string // visible: id of the visible version; empty: none
	visibleNo, visibleUpload int64
	lastNo                   int64
	deleted                  bool
}

// openVersion is a BUILDING version of a locked document.
type openVersion struct {
	id, task, document, base string
	no, upload               int64
	built                    int // segments, as the last row transaction counted them
}

// segmentCount is what the rows of a version really are.
type segmentCount struct{ n, lowest, highest int }

// Decide implements taskrun.Handler: a version that is complete becomes visible unless a later upload is, or the document is gone.
func (w *Worker) Decide(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, dones []taskrun.Done) ([]taskstate.Decision, error) {
	tasks := make([]string, len(dones))
	var ids []string
	for i, d := range dones {
		tasks[i] = d.Task.ID
		if d.Task.DocumentID != "" {
			ids = append(ids, d.Task.DocumentID)
		}
	}
	documents, err := w.a.lockDocuments(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	open, err := w.a.openVersions(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	counts, err := w.a.countSegments(ctx, tx, open)
	if err != nil {
		return nil, err
	}
	winners := latestPerDocument(open)
	out := make([]taskstate.Decision, len(dones))
	for i, d := range dones {
		v, found := open[d.Task.ID]
		doc, alive := documents[d.Task.DocumentID]
		switch {
		case !alive || doc.deleted:
			out[i] = taskstate.Withdraw(m, d.Task, d.Holder, taskstate.ReasonDeleted, "its document was deleted")
		case !found:
			out[i] = w.a.failHere(m, d, "its version is closed")
		case !w.a.wins(doc, v) || winners[v.document] != v.id || notWanted(d):
			out[i] = taskstate.Withdraw(m, d.Task, d.Holder, taskstate.ReasonSuperseded, "a later upload is visible")
		default:
			out[i] = w.a.complete(m, d, doc, v, counts[v.id])
		}
	}
	return out, nil
}

// wins is the switch rule of design D8.
func (a *App) wins(d lockedDocument, v openVersion) bool {
	return d.visibleNo < v.no && d.visibleUpload <= v.upload
}

// notWanted reports whether the run itself found a later upload visible.
func notWanted(d taskrun.Done) bool {
	f, ok := d.Result.Payload.(*finishing)
	return ok && f.outcome == taskstate.ReasonSuperseded
}

// complete checks the count: the rows must be 0 … n−1, as many as the run planned.
func (a *App) complete(m taskstate.DBClock, d taskrun.Done, doc lockedDocument, v openVersion, c segmentCount) taskstate.Decision {
	f, ok := d.Result.Payload.(*finishing)
	switch {
	case !ok || f.outcome != taskstate.ReasonDone || f.version != v.id:
		return a.failHere(m, d, "the run did not build this version")
	case c.n != f.segments || v.built != f.segments || c.lowest != 0 || c.highest != f.segments-1:
		return a.failHere(m, d, fmt.Sprintf("%d segment rows stand where %d were written", c.n, f.segments))
	}
	out := taskstate.Succeed(m, d.Task, d.Holder, d.Result.Output, d.Result.Message)
	if out.Change != nil { // the last report may not have been written yet
		out.Change.Progress.Processed, out.Change.Progress.Total = f.segments, f.segments
		f.shown = &shown{version: v.id, document: doc.id, only: doc.lastNo == 1}
	}
	return out
}

// failHere ends an attempt inside the finish transaction: the next one mends what is missing.
func (a *App) failHere(m taskstate.DBClock, d taskrun.Done, why string) taskstate.Decision {
	return taskstate.Fail(a.d.Policy, m, d.Task, d.Holder, taskstate.Failure{
		Code: string(CodeInternal), Cause: "finish: " + why, Message: "The document could not be finished: " + why + ".",
	})
}

// latestPerDocument is, for each document, the one of the open versions that may become visible in this transaction.
func latestPerDocument(open map[string]openVersion) map[string]string {
	best := map[string]openVersion{}
	for _, v := range open {
		b, ok := best[v.document]
		if !ok || v.upload > b.upload || (v.upload == b.upload && v.no > b.no) {
			best[v.document] = v
		}
	}
	out := make(map[string]string, len(best))
	for document, v := range best {
		out[document] = v.id
	}
	return out
}

// lockDocumentsOf locks the documents of tasks, in id order, and returns them by id.
func (a *App) lockDocumentsOf(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]lockedDocument, error) {
	if len(tasks) == 0 {
		return map[string]lockedDocument{}, nil
	}
	ids, err := column(ctx, tx, a.q.List("TaskDocuments", len(tasks)), args(tasks)...)
	if err != nil {
		return nil, fmt.Errorf("find the tasks' documents: %w", err)
	}
	return a.lockDocuments(ctx, tx, ids)
}

// lockDocuments locks documents in id order and returns them by id, tombstones too.
func (a *App) lockDocuments(ctx context.Context, tx taskstate.Tx, ids []string) (map[string]lockedDocument, error) {
	out := make(map[string]lockedDocument, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	rows, err := tx.QueryContext(ctx, a.q.List("DocumentsLock", len(ids)), args(ids)...)
	if err != nil {
		return nil, fmt.Errorf("lock documents: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d lockedDocument
		var deleted taskstate.DBTime
		if err := rows.Scan(&d.id, &d.visible, &d.visibleNo, &d.visibleUpload, &d.lastNo, &deleted); err != nil {
			return nil, fmt.Errorf("lock documents: %w", err)
		}
		d.visible = strings.TrimSpace(d.visible)
		d.deleted = !deleted.IsZero()
		out[d.id] = d
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock documents: %w", err)
	}
	return out, nil
}

// openVersions returns the BUILDING version of each task that has one, by task.
func (a *App) openVersions(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]openVersion, error) {
	out := make(map[string]openVersion, len(tasks))
	if len(tasks) == 0 {
		return out, nil
	}
	rows, err := tx.QueryContext(ctx, a.q.List("VersionsOpen", len(tasks)), args(tasks)...)
	if err != nil {
		return nil, fmt.Errorf("read open versions: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v openVersion
		if err := rows.Scan(&v.id, &v.task, &v.document, &v.base, &v.no, &v.upload, &v.built); err != nil {
			return nil, fmt.Errorf("read open versions: %w", err)
		}
		out[v.task] = v
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read open versions: %w", err)
	}
	return out, nil
}

// countSegments counts the rows of versions, by version.
func (a *App) countSegments(ctx context.Context, tx taskstate.Tx, open map[string]openVersion) (map[string]segmentCount, error) {
	out := make(map[string]segmentCount, len(open))
	if len(open) == 0 {
		return out, nil
	}
	ids := make([]string, 0, len(open))
	for _, v := range open {
		ids = append(ids, v.id)
	}
	slices.Sort(ids)
	rows, err := tx.QueryContext(ctx, a.q.List("VersionCounts", len(ids)), args(ids)...)
	if err != nil {
		return nil, fmt.Errorf("count segments: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		var c segmentCount
		if err := rows.Scan(&id, &c.n, &c.lowest, &c.highest); err != nil {
			return nil, fmt.Errorf("count segments: %w", err)
		}
		out[id] = c
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count segments: %w", err)
	}
	return out, nil
}
