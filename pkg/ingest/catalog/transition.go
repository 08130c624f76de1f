package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

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
	locked, err := a.LockDocumentsOf(ctx, tx, all)
	if err != nil || len(locked) == 0 { // tasks without documents
		return err
	}
	open, err := a.OpenVersions(ctx, tx, by[taskstate.StatusSucceeded])
	if err != nil {
		return err
	}
	var shown []Shown
	for _, v := range open {
		shown = append(shown, Shown{Version: v.ID, Document: v.Document})
	}
	if err := a.Show(ctx, tx, m, shown); err != nil {
		return err
	}
	ended := slices.Concat(by[taskstate.StatusDead], by[taskstate.StatusCancelled])
	if err := a.ExecList(ctx, tx, "VersionsAbandon", ended, m.Now, m.Now, m.Now); err != nil {
		return err
	}
	documents := sqldb.Args(slices.Sorted(maps.Keys(locked)))
	for _, f := range []struct {
		status ingest.DocumentStatus
		tasks  []string
	}{
		{ingest.DocumentFailed, ended},
		{ingest.DocumentProcessing, by[taskstate.StatusRunning]},
		{ingest.DocumentQueued, by[taskstate.StatusQueued]},
	} {
		if err := a.follow(ctx, tx, m, f.status, documents, f.tasks); err != nil {
			return err
		}
	}
	return nil
}

// Shown is a version that becomes visible.
type Shown struct {
	Version, Document string
	Only              bool // the document never had another
}

// Show makes versions visible in place of those before; their documents are locked and read in this transaction.
// The sweeper ends what is outdated by them. A document's only version supersedes none and outdates no upload.
func (a *Catalog) Show(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, all []Shown) error {
	var versions, documents, changing []string
	for _, s := range all {
		versions, documents = append(versions, s.Version), append(documents, s.Document)
		if !s.Only {
			changing = append(changing, s.Document)
		}
	}
	slices.Sort(versions)
	slices.Sort(documents)
	slices.Sort(changing)
	for _, w := range []struct {
		name   string
		list   []string
		params []any
	}{
		{"VersionsSupersede", changing, []any{m.Now, m.Now, m.Now.Add(switchRest)}},
		{"VersionsShow", versions, []any{m.Now}},
		{"DocumentsShow", documents, []any{m.Now}},
		{"VersionsOutdated", changing, []any{m.Now}},
	} {
		if err := a.ExecList(ctx, tx, w.name, w.list, w.params...); err != nil {
			return err
		}
	}
	return nil
}

// follow sets the status of documents without a visible version whose newest upload's task is among tasks.
func (a *Catalog) follow(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, s ingest.DocumentStatus, documents []any, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	params := slices.Concat([]any{string(s), m.Now, string(s)}, documents, sqldb.Args(tasks))
	if _, err := tx.ExecContext(ctx, a.q.List("DocumentsFollow", len(documents), len(tasks)), params...); err != nil {
		return fmt.Errorf("set documents %s: %w", s, err)
	}
	return nil
}
