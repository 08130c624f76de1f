package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// transitionWrites is one transaction's writing of what belongs to its tasks' changes: versions and documents, set-based.
type transitionWrites struct {
	a         *Catalog
	tx        taskstate.Tx
	m         taskstate.DBClock
	documents []string // of all changed tasks, locked
}

// OnTransition writes what belongs to changes of any kind: a success switches the version, an end without success abandons it,
// and the document's status follows its newest upload's task (design D8, D13).
func (a *Catalog) OnTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
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
	locked, err := a.LockDocumentsOf(ctx, tx, all)
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
	if err := w.follow(ctx, ingest.DocumentProcessing, by[taskstate.StatusRunning]); err != nil {
		return err
	}
	return w.follow(ctx, ingest.DocumentQueued, by[taskstate.StatusQueued])
}

// succeed makes the versions of succeeded tasks visible in place of those before; the sweeper ends what is outdated by them.
func (w *transitionWrites) succeed(ctx context.Context, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	open, err := w.a.OpenVersions(ctx, w.tx, tasks)
	if err != nil {
		return err
	}
	var all []Shown
	for _, v := range open {
		all = append(all, Shown{Version: v.ID, Document: v.Document})
	}
	return w.show(ctx, all)
}

// Show makes versions visible whose documents are locked and read in this transaction.
func (a *Catalog) Show(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, all []Shown) error {
	return (&transitionWrites{a: a, tx: tx, m: m}).show(ctx, all)
}

// show makes versions visible in place of those before. A document's only version supersedes none and outdates no upload.
func (w *transitionWrites) show(ctx context.Context, all []Shown) error {
	var versions, documents, changing []string
	for _, s := range all {
		versions, documents = append(versions, s.Version), append(documents, s.Document)
		if !s.Only {
			changing = append(changing, s.Document)
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
		if err := w.exec(ctx, "supersede versions", w.a.Lists("VersionsSupersede", len(changing)), []any{now, now, later}, changing); err != nil {
			return err
		}
	}
	if err := w.exec(ctx, "show versions", w.a.Lists("VersionsShow", len(versions)), []any{now}, versions); err != nil {
		return err
	}
	if err := w.exec(ctx, "show documents", w.a.Lists("DocumentsShow", len(documents)), []any{now}, documents); err != nil {
		return err
	}
	if len(changing) == 0 {
		return nil
	}
	return w.exec(ctx, "note outdated uploads", w.a.Lists("VersionsOutdated", len(changing)), []any{now}, changing)
}

// abandon closes the versions of tasks that ended without success.
func (w *transitionWrites) abandon(ctx context.Context, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	now := w.m.Now
	if err := w.exec(ctx, "abandon versions", w.a.Lists("VersionsAbandon", len(tasks)), []any{now, now, now}, tasks); err != nil {
		return err
	}
	return w.follow(ctx, ingest.DocumentFailed, tasks)
}

// follow sets the status of documents without a visible version whose newest upload's task is among tasks.
func (w *transitionWrites) follow(ctx context.Context, s ingest.DocumentStatus, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	params := append([]any{string(s), w.m.Now, string(s)}, sqldb.Args(w.documents)...)
	_, err := w.tx.ExecContext(ctx, w.a.Lists("DocumentsFollow", len(w.documents), len(tasks)), append(params, sqldb.Args(tasks)...)...)
	if err != nil {
		return fmt.Errorf("set documents %s: %w", s, err)
	}
	return nil
}

// exec runs one statement whose list comes last.
func (w *transitionWrites) exec(ctx context.Context, what, query string, params []any, list []string) error {
	if _, err := w.tx.ExecContext(ctx, query, append(params, sqldb.Args(list)...)...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Shown is a version that becomes visible.
type Shown struct {
	Version, Document string
	Only              bool // the document never had another
}
