package query

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Bases lists live bases, by default the newest first.
func (r *Reads) Bases(ctx context.Context, c ingest.Caller, q ingest.ListQuery) ([]ingest.Base, error) {
	q.Sort = cmp.Or(q.Sort, taskstate.SortCreatedDesc)
	l, err := r.list(ctx, c, "Base", "BaseList", 1, q)
	if err != nil {
		return nil, err
	}
	bases, err := sqldb.ReadAll(ctx, r.store, "list knowledge bases", l.text.String(), l.args, func(rows *sql.Rows) (ingest.Base, error) {
		return catalog.BaseFrom(rows)
	})
	if err != nil || !q.Counts {
		return bases, err
	}
	return bases, r.count(ctx, c, bases)
}

// count adds the documents and tasks of bases.
func (r *Reads) count(ctx context.Context, c ingest.Caller, bases []ingest.Base) error {
	if len(bases) == 0 {
		return nil
	}
	ids, at := make([]string, len(bases)), map[string]*ingest.BaseCounts{}
	for i := range bases {
		ids[i] = bases[i].ID
		bases[i].Counts = &ingest.BaseCounts{Documents: map[ingest.DocumentStatus]int64{}}
		at[ids[i]] = bases[i].Counts
	}
	tasks, err := r.store.CountsIn(ctx, c.Scope, ids)
	if err != nil {
		return err
	}
	query := r.q.Bind("BaseDocuments", sqldb.Parts{"list": sqldb.List(ids)})
	type row struct {
		base        string
		status      ingest.DocumentStatus
		n, segments int64
	}
	rows, err := sqldb.ReadAll(ctx, r.store, "count documents", query.Text, query.Args, func(rows *sql.Rows) (x row, err error) {
		err = rows.Scan(&x.base, &x.status, &x.n, &x.segments)
		return x, err
	})
	for _, x := range rows {
		b := at[x.base]
		b.Documents[x.status] += x.n
		b.Segments += x.segments
	}
	for id, b := range at {
		maps.DeleteFunc(b.Documents, func(_ ingest.DocumentStatus, n int64) bool { return n == 0 })
		var all int64
		for _, n := range b.Documents {
			all += n
		}
		b.Percent = int(100 * b.Documents[ingest.DocumentReady] / max(all, 1))
		b.Tasks = tasks[id]
	}
	return err
}

// BaseSummary counts a base's documents and tasks, and says how those come on.
func (r *Reads) BaseSummary(ctx context.Context, c ingest.Caller, idOrName string) (ingest.Summary, error) {
	b, err := r.cat.Base(ctx, c, idOrName)
	if err != nil {
		return ingest.Summary{}, err
	}
	bases := []ingest.Base{b}
	if err := r.count(ctx, c, bases); err != nil {
		return ingest.Summary{}, err
	}
	s := ingest.Summary{Base: b, BaseCounts: *bases[0].Counts}
	s.Pace, err = r.pace(ctx, c, b.ID, s.Tasks)
	return s, err
}

// countedBases is how many bases TaskCounts tells apart.
const countedBases = 20

// TaskCounts counts tasks by status, stage and base. Counts of statuses and bases are kept; stages are read from the tasks that run.
func (r *Reads) TaskCounts(ctx context.Context, c ingest.Caller, base string) (out ingest.TaskCounts, err error) {
	if base == "" {
		out.Bases, err = r.Bases(ctx, c, ingest.ListQuery{Limit: countedBases})
	} else {
		out.Bases = make([]ingest.Base, 1)
		out.Bases[0], err = r.cat.Base(ctx, c, base)
	}
	if err != nil {
		return out, err
	}
	if out.Tasks, err = r.store.Counts(ctx, c.Scope, base); err != nil {
		return out, err
	}
	ids := make([]string, len(out.Bases))
	for i := range out.Bases {
		ids[i] = out.Bases[i].ID
	}
	counts := map[string]map[taskstate.Status]int64{}
	if len(ids) > 0 {
		if counts, err = r.store.CountsIn(ctx, c.Scope, ids); err != nil {
			return out, err
		}
	}
	for i, id := range ids {
		out.Bases[i].Counts = &ingest.BaseCounts{Tasks: counts[id]}
	}
	pace, err := r.store.Pace(ctx, c.Scope, base, paceWindow)
	out.Stages = pace.Stages
	return out, err
}

// paceWindow is how far back a pace looks.
const paceWindow = 10 * time.Minute

// pace is how the tasks of a base come on, of which there are so many; base "" is all bases.
func (r *Reads) pace(ctx context.Context, c ingest.Caller, base string, counts map[taskstate.Status]int64) (ingest.Pace, error) {
	p, err := r.store.Pace(ctx, c.Scope, base, paceWindow)
	if err != nil {
		return ingest.Pace{}, err
	}
	out := ingest.Pace{
		Stages: p.Stages, PerMinute: p.PerMinute(), Half: p.TookAt(50), Most: p.TookAt(95),
		Left: p.Left(taskstate.Unfinished(counts)),
	}
	if p.Oldest.IsZero() {
		return out, nil
	}
	m, err := r.store.Moment(ctx)
	out.OldestWaiting = max(m.Now.Sub(p.Oldest), 0)
	return out, err
}
