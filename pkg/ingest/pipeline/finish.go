package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Decide implements taskrun.Decider: a version that is complete becomes visible unless a later upload is, or the document is gone.
func (w *Worker) Decide(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, dones []taskrun.Done) ([]taskstate.Decision, error) {
	tasks := make([]string, len(dones))
	var ids []string
	for i, d := range dones {
		tasks[i] = d.Task.ID
		if d.Task.DocumentID != "" {
			ids = append(ids, d.Task.DocumentID)
		}
	}
	documents, err := w.cat.LockDocuments(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	open, err := w.cat.OpenVersions(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	counts, err := w.cat.CountSegments(ctx, tx, open)
	if err != nil {
		return nil, err
	}
	winners := latestPerDocument(open)
	out := make([]taskstate.Decision, len(dones))
	for i, d := range dones {
		v, found := open[d.Task.ID]
		doc, alive := documents[d.Task.DocumentID]
		switch {
		case !alive || doc.Deleted:
			out[i] = taskstate.Withdraw(m, d.Task, d.Holder, taskstate.ReasonDeleted, "its document was deleted")
		case !found:
			out[i] = w.failHere(m, d, "its version is closed")
		case v.Elsewhere || v.ClosedUntil.After(m.Now):
			out[i] = w.comeBack(m, d)
		case !w.wins(doc, v) || winners[v.Document].ID != v.ID || notWanted(d):
			out[i] = taskstate.Withdraw(m, d.Task, d.Holder, taskstate.ReasonSuperseded, "a later upload is visible")
		default:
			out[i] = w.complete(m, d, doc, v, counts[v.ID])
		}
	}
	return out, nil
}

// wins is the switch rule of design D8.
func (w *Worker) wins(d catalog.LockedDocument, v catalog.OpenVersion) bool {
	return d.VisibleNo < v.No && d.VisibleUpload <= v.Upload
}

// notWanted reports whether the run itself found a later upload visible.
func notWanted(d taskrun.Done) bool {
	f, ok := d.Result.Payload.(*finishing)
	return ok && f.outcome == taskstate.ReasonSuperseded
}

// complete checks the count: the rows must be 0 … n−1, as many as the run planned.
func (w *Worker) complete(m taskstate.DBClock, d taskrun.Done, doc catalog.LockedDocument, v catalog.OpenVersion, c catalog.SegmentCount) taskstate.Decision {
	f, ok := d.Result.Payload.(*finishing)
	switch {
	case !ok || f.outcome != taskstate.ReasonDone || f.version != v.ID:
		return w.failHere(m, d, "the run did not build this version")
	case c.N != f.segments || v.Built != f.segments || c.Lowest != 0 || c.Highest != f.segments-1:
		return w.failHere(m, d, fmt.Sprintf("%d segment rows stand where %d were written", c.N, f.segments))
	}
	out := taskstate.Succeed(m, d.Task, d.Holder, d.Result.Output, d.Result.Message)
	if out.Change != nil { // the last report may not have been written yet
		out.Change.Progress.Processed, out.Change.Progress.Total = f.segments, f.segments
		f.shown = &catalog.Shown{Version: v.ID, Segments: f.segments, Document: doc}
	}
	return out
}

// comeBack lets a run begin again a little later: the base moves to another collection, or has moved (design D26).
func (w *Worker) comeBack(m taskstate.DBClock, d taskrun.Done) taskstate.Decision {
	return taskstate.Fail(w.d.Policy, m, d.Task, d.Holder, taskstate.Failure{
		Code: string(ingest.CodeThrottled), Cause: "finish: the knowledge base is moved to another embedding model", Throttled: true, RetryAfter: time.Second,
		Message: "The knowledge base is just moved to another embedding model; the document goes on by itself.",
	})
}

// failHere ends an attempt inside the finish transaction: the next one mends what is missing.
func (w *Worker) failHere(m taskstate.DBClock, d taskrun.Done, why string) taskstate.Decision {
	return taskstate.Fail(w.d.Policy, m, d.Task, d.Holder, taskstate.Failure{
		Code: string(ingest.CodeInternal), Cause: "finish: " + why, Message: "The document could not be finished: " + why + ".",
	})
}

// latestPerDocument is, for each document, the one of the open versions that may become visible in this transaction.
func latestPerDocument(open map[string]catalog.OpenVersion) map[string]catalog.OpenVersion {
	best := map[string]catalog.OpenVersion{}
	for _, v := range open {
		b, ok := best[v.Document]
		if !ok || v.Upload > b.Upload || (v.Upload == b.Upload && v.No > b.No) {
			best[v.Document] = v
		}
	}
	return best
}

// OnTransition implements taskrun.Handler.
func (w *Worker) OnTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, payloads map[string]any) error {
	if all, ok := decided(changed, payloads); ok {
		return w.cat.Show(ctx, tx, m, all)
	}
	return w.cat.OnTransition(ctx, tx, m, changed)
}

// decided returns the versions that become visible when all changes are successes whose documents Decide has locked and
// read in this transaction: nothing has to be looked up again.
func decided(changed []taskstate.Decision, payloads map[string]any) ([]catalog.Shown, bool) {
	out := make([]catalog.Shown, 0, len(changed))
	for _, d := range changed {
		f, ok := payloads[d.TaskID].(*finishing)
		if !ok || f.shown == nil || d.Change == nil || d.Change.To != taskstate.StatusSucceeded {
			return nil, false
		}
		out = append(out, *f.shown)
	}
	return out, len(out) > 0
}
