package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/taskstate"
)

// onTransition is one transaction's writing of what belongs to its tasks' changes: versions and documents, set-based.
type transitionWrites struct {
	a         *App
	tx        taskstate.Tx
	m         taskstate.DBClock
	documents []string // of all changed tasks, locked
}

// OnTransition implements taskrun.Handler.
func (w *Worker) OnTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, payloads map[string]any) error {
	if all, ok := decided(changed, payloads); ok {
		return (&transitionWrites{a: w.a, tx: tx, m: m}).show(ctx, all)
	}
	return w.a.onTransition(ctx, tx, m, changed)
}

// decided returns the versions that become visible when all changes are successes whose documents Decide has locked and
// read in this transaction: nothing has to be looked up again.
func decided(changed []taskstate.Decision, payloads map[string]any) ([]shown, bool) {
	out := make([]shown, 0, len(changed))
	for _, d := range changed {
		f, ok := payloads[d.TaskID].(*finishing)
		if !ok || f.shown == nil || d.Change == nil || d.Change.To != taskstate.StatusSucceeded {
			return nil, false
		}
		out = append(out, *f.shown)
	}
	return out, len(out) > 0
}

// onTransition writes what belongs to changes of any kind: a success switches the version, an end without success abandons it,
// and the document's status follows its newest upload's task (design D8, D13).
func (a *App) onTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
	by := map[taskstate.Status][]string{}
	var all []string
	for _, d := range changed {
		if d.Change == nil || d.Change.Silent {
			continue
		}
		by[d.Change.To] = append(by[d.Change.To], d.TaskID)
		all = append(all, d.TaskID)
	}
	if len(all) == 0 {
		return nil
	}
	locked, err := a.lockDocumentsOf(ctx, tx, all)
	if err != nil {
		return err
	}
	w := transitionWrites{a: a, tx: tx, m: m}
	for id := range locked {
		w.documents = append(w.documents, id)
	}
	if len(w.documents) == 0 {
		return nil // tasks without documents
	}
	slices.Sort(w.documents)
	if err := w.succeed(ctx, by[taskstate.StatusSucceeded]); err != nil {
		return err
	}
	if err := w.abandon(ctx, append(by[taskstate.StatusDead], by[taskstate.StatusCancelled]...)); err != nil {
		return err
	}
	if err := w.follow(ctx, DocumentProcessing, by[taskstate.StatusRunning]); err != nil {
		return err
	}
	return w.follow(ctx, DocumentQueued, by[taskstate.StatusQueued])
}

// succeed makes the versions of succeeded tasks visible in place of those before; the sweeper ends what is outdated by them.
func (w *transitionWrites) succeed(ctx context.Context, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	open, err := w.a.openVersions(ctx, w.tx, tasks)
	if err != nil {
		return err
	}
	var all []shown
	for _, v := range open {
		all = append(all, shown{version: v.id, document: v.document})
	}
	return w.show(ctx, all)
}

// show makes versions visible in place of those before. A document's only version supersedes none and outdates no upload.
func (w *transitionWrites) show(ctx context.Context, all []shown) error {
	var versions, documents, changing []string
	for _, s := range all {
		versions, documents = append(versions, s.version), append(documents, s.document)
		if !s.only {
			changing = append(changing, s.document)
		}
	}
	if len(versions) == 0 {
		return nil // another kind's tasks
	}
	slices.Sort(versions)
	slices.Sort(documents)
	slices.Sort(changing)
	now, later := w.m.Now, w.m.Now.Add(switchRest)
	if len(changing) > 0 {
		if err := w.exec(ctx, "supersede versions", w.a.lists("VersionsSupersede", len(changing)), []any{now, now, later}, changing); err != nil {
			return err
		}
	}
	if err := w.exec(ctx, "show versions", w.a.lists("VersionsShow", len(versions)), []any{now}, versions); err != nil {
		return err
	}
	if err := w.exec(ctx, "show documents", w.a.lists("DocumentsShow", len(documents)), []any{now}, documents); err != nil {
		return err
	}
	if len(changing) == 0 {
		return nil
	}
	return w.exec(ctx, "note outdated uploads", w.a.lists("VersionsOutdated", len(changing)), []any{now}, changing)
}

// abandon closes the versions of tasks that ended without success.
func (w *transitionWrites) abandon(ctx context.Context, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	now := w.m.Now
	if err := w.exec(ctx, "abandon versions", w.a.lists("VersionsAbandon", len(tasks)), []any{now, now, now}, tasks); err != nil {
		return err
	}
	return w.follow(ctx, DocumentFailed, tasks)
}

// follow sets the status of documents without a visible version whose newest upload's task is among tasks.
func (w *transitionWrites) follow(ctx context.Context, s DocumentStatus, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	params := append([]any{string(s), w.m.Now, string(s)}, args(w.documents)...)
	_, err := w.tx.ExecContext(ctx, w.a.lists("DocumentsFollow", len(w.documents), len(tasks)), append(params, args(tasks)...)...)
	if err != nil {
		return fmt.Errorf("set documents %s: %w", s, err)
	}
	return nil
}

// exec runs one statement whose list comes last.
func (w *transitionWrites) exec(ctx context.Context, what, query string, params []any, list []string) error {
	if _, err := w.tx.ExecContext(ctx, query, append(params, args(list)...)...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
