package catalog

import (
	"context"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
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
	counts := Counts{}
	var shown []Shown
	for _, v := range open {
		shown = append(shown, Shown{Version: v.ID, Segments: v.Built, Document: locked[v.Document]})
	}
	if err := a.show(ctx, tx, m, shown, counts); err != nil {
		return err
	}
	for _, s := range shown {
		delete(locked, s.Document.ID) // they have a visible version
	}
	ended := slices.Concat(by[taskstate.StatusDead], by[taskstate.StatusCancelled])
	if err := a.ExecList(ctx, tx, "VersionsAbandon", ended, m.Now, m.Now, m.Now); err != nil {
		return err
	}
	for _, f := range []struct {
		status ingest.DocumentStatus
		tasks  []string
	}{
		{ingest.DocumentFailed, ended},
		{ingest.DocumentProcessing, by[taskstate.StatusRunning]},
		{ingest.DocumentQueued, by[taskstate.StatusQueued]},
	} {
		if err := a.ExecList(ctx, tx, "DocumentsSetStatus", follow(locked, f.tasks, f.status, counts), string(f.status), m.Now); err != nil {
			return err
		}
	}
	return a.Count(ctx, tx, counts)
}

// follow returns the documents that get a status: those without a visible version have that of their newest upload's task, here one of
// tasks (design D13). They are locked, and counted.
func follow(locked map[string]LockedDocument, tasks []string, status ingest.DocumentStatus, counts Counts) (out []string) {
	if len(tasks) == 0 {
		return nil
	}
	among := make(map[string]bool, len(tasks))
	for _, id := range tasks {
		among[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(locked)) {
		d := locked[id]
		if d.VisibleNo == 0 && !d.Deleted && d.Status != status && among[d.LatestTask] {
			out = append(out, id)
			counts.Changed(d.Base, d.Status, d.Segments, status, d.Segments)
		}
	}
	return out
}

// Shown is a version that becomes visible.
type Shown struct {
	Version  string
	Segments int            // of the version
	Document LockedDocument // as it was before
}

// Show makes versions visible in place of those before; their documents are locked and read in this transaction.
// The sweeper ends what is outdated by them.
func (a *Catalog) Show(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, all []Shown) error {
	counts := Counts{}
	if err := a.show(ctx, tx, m, all, counts); err != nil {
		return err
	}
	return a.Count(ctx, tx, counts)
}

// show is Show without the counting. A document's only version supersedes none and outdates no upload.
func (a *Catalog) show(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, all []Shown, counts Counts) error {
	var versions, documents, changing []string
	for _, s := range all {
		d := s.Document
		versions, documents = append(versions, s.Version), append(documents, d.ID)
		if d.LastNo != 1 {
			changing = append(changing, d.ID)
		}
		counts.Changed(d.Base, d.Status, d.Segments, ingest.DocumentReady, s.Segments)
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
