package taskstore

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Failures are counted by their cause. failure_group has a row for each cause of a user, a base and a stage; task_failure has one for
// each task that fails (taskstate.Task.Fails) and says in which of them it is counted. Both are written with the change that tells
// of a failure or of its end, last in its transaction and in the order of their ids: a row that many failures share is locked for
// the time of a commit, and nobody who has it waits for another lock. A change that tells of neither costs nothing.

// sampleChars is how much is kept of a group's first error.
const sampleChars = 500

// counted is what a batch changes of one row of failure_group.
type counted struct {
	failing         taskstate.Failing
	failures, tasks int
	permanent       bool
	task            taskstate.Task // one that failed
}

// failures counts what the batch tells of failures.
func (b *batch) failures(ctx context.Context, tx taskstate.Tx) error {
	var known []string // tasks that may be counted already
	fails := false
	for _, i := range b.changed {
		c := b.decisions[i].Change
		fails = fails || c.Fails()
		if b.tasks[i].Fails() && (c.Fails() || !b.after(i).Fails()) {
			known = append(known, b.tasks[i].ID)
		}
	}
	if len(known) == 0 && !fails {
		return nil
	}
	before, err := b.store.failing(ctx, tx, known)
	if err != nil {
		return err
	}
	groups := map[string]*counted{}
	group := func(id string) *counted {
		if groups[id] == nil {
			groups[id] = &counted{}
		}
		return groups[id]
	}
	var gone []any
	var put [][]any
	for _, i := range b.changed {
		t, c := b.after(i), b.decisions[i].Change
		was, counts := before[t.ID]
		switch {
		case c.Fails():
			now := taskstate.FailingOf(t)
			g := group(now.ID)
			g.failing, g.task, g.failures, g.permanent = now, t, g.failures+1, c.Reason == taskstate.ReasonPermanent
			if counts && was == now.ID {
				continue
			}
			g.tasks++
			put = append(put, []any{t.ID, now.ID, now.Cause.Group(), t.CreatedAt})
		case counts && !t.Fails():
			gone = append(gone, t.ID)
		default:
			continue
		}
		if counts {
			group(was).tasks--
		}
	}
	if len(gone) > 0 {
		query := b.store.queries.Bind("FailureGone", sqldb.Parts{"list": sqldb.List(gone)})
		if _, err := tx.ExecContext(ctx, query.Text, query.Args...); err != nil {
			return fmt.Errorf("count failures that are over: %w", err)
		}
	}
	if len(put) > 0 {
		if _, err := tx.ExecContext(ctx, b.store.queries.Rows("FailurePut", len(put)), slices.Concat(put...)...); err != nil {
			return fmt.Errorf("count failures: %w", err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if err := b.store.countGroup(ctx, tx, id, groups[id], b.written.at); err != nil {
			return fmt.Errorf("count failures of a group: %w", err)
		}
	}
	return nil
}

// failing returns in which rows of failure_group tasks are counted, by task.
func (s *Store) failing(ctx context.Context, tx taskstate.Tx, ids []string) (map[string]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(ids))
	query := s.queries.Bind("FailureOf", sqldb.Parts{"list": sqldb.List(ids)})
	err := sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
		var task, id string
		err := rows.Scan(&task, &id)
		out[task] = id
		return err
	}, query.Text, query.Args...)
	if err != nil {
		return nil, fmt.Errorf("read where failures are counted: %w", err)
	}
	return out, nil
}

// countGroup writes one row of failure_group.
func (s *Store) countGroup(ctx context.Context, tx taskstate.Tx, id string, g *counted, at time.Time) error {
	if g.failures == 0 {
		_, err := tx.ExecContext(ctx, s.queries.Get("FailureGroupLess"), -g.tasks, id)
		return err
	}
	f := g.failing
	_, err := tx.ExecContext(ctx, s.queries.Get("FailureGroupPut"), id, f.Cause.Group(), f.User, f.Base, string(f.Stage), f.Cause.Code, f.Cause.Pattern,
		sqldb.Flag(g.permanent), g.failures, g.tasks, g.task.ID, taskstate.Shorten(clean(g.task.LastError), sampleChars), taskstate.Shorten(clean(g.task.ErrorMessage), sampleChars), at, at)
	return err
}

// FailureGroups implements taskstate.Reader.
func (s *Store) FailureGroups(ctx context.Context, scope taskstate.Scope, q taskstate.GroupQuery) ([]taskstate.FailureGroup, error) {
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, fmt.Errorf("list failures: %w: limit %d is not within 1–%d", ErrInvalid, q.Limit, maxPage)
	}
	if !sqldb.ASCII(q.KnowledgeBase) || !sqldb.ASCII(q.ID) {
		return nil, nil
	}
	whose := sqldb.Part{}
	if !scope.All() {
		whose = s.queries.Part("GroupOfUser", scope.UserID)
	}
	f, having := &filters{}, sqldb.Part{}
	if q.KnowledgeBase != "" {
		f.add(s.queries.Get("GroupOfBase"), q.KnowledgeBase)
	}
	if q.ID != "" {
		f.add(s.queries.Get("GroupID"), q.ID)
	}
	if q.After != nil {
		at := q.After.At.UTC().Truncate(time.Microsecond)
		having = s.queries.Part("GroupsAfter", at, at, clean(q.After.ID))
	}
	sums := s.queries.Bind("FailureGroups", sqldb.Parts{"scope": whose, "filters": f.part(), "having": having}, q.Limit)
	return read(ctx, s, "list failures", func(ctx context.Context, tx taskstate.Tx) ([]taskstate.FailureGroup, error) {
		groups, err := sqldb.Collect(ctx, tx, scanSums, sums.Text, sums.Args...)
		if err != nil || len(groups) == 0 {
			return nil, err
		}
		place, ids := map[string]int{}, make([]string, len(groups))
		for i, g := range groups {
			place[g.ID], ids[i] = i, g.ID
		}
		parts := s.queries.Bind("FailureGroupsOf", sqldb.Parts{"list": sqldb.List(ids), "scope": whose})
		return groups, sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			g, err := scanGroup(rows)
			if err == nil && (q.KnowledgeBase == "" || g.Bases[0] == q.KnowledgeBase) {
				merge(&groups[place[g.ID]], g)
			}
			return err
		}, parts.Text, parts.Args...)
	})
}

// scanSums reads a row of FailureGroups.
func scanSums(rows *sql.Rows) (g taskstate.FailureGroup, err error) {
	var first, last taskstate.DBTime
	err = rows.Scan(&g.ID, &last, &g.Failures, &g.Tasks, &first)
	g.FirstAt, g.LastAt = first.Time, last.Time
	return g, err
}

// scanGroup reads a row of FailureGroupsOf.
func scanGroup(rows *sql.Rows) (g taskstate.FailureGroup, err error) {
	var user, base string
	var stage taskstate.Stage
	var permanent int
	var first, last taskstate.DBTime
	err = rows.Scan(&g.ID, &user, &base, &stage, &g.Cause.Code, &g.Cause.Pattern, &permanent, &g.Failures, &g.Tasks, &g.SampleID, &g.Sample, &g.Message,
		&first, &last)
	g.Permanent, g.Stages, g.Bases = permanent != 0, []taskstate.Stage{stage}, []string{base}
	return g, err
}

// merge adds a row to its group; the first one has the latest failure.
func merge(to *taskstate.FailureGroup, g taskstate.FailureGroup) {
	if to.SampleID == "" {
		to.Cause, to.Permanent, to.Sample, to.Message, to.SampleID = g.Cause, g.Permanent, g.Sample, g.Message, g.SampleID
	}
	if !slices.Contains(to.Stages, g.Stages[0]) {
		to.Stages = append(to.Stages, g.Stages[0])
	}
	if base := g.Bases[0]; base != "" && !slices.Contains(to.Bases, base) {
		to.Bases = append(to.Bases, base)
	}
}

// ForgetFailures implements taskstate.Reader.
func (s *Store) ForgetFailures(ctx context.Context, ago time.Duration) error {
	return s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		if _, err := tx.ExecContext(ctx, s.queries.Get("FailureGroupsForget"), -ago.Microseconds()); err != nil {
			return fmt.Errorf("forget failures: %w", err)
		}
		return nil
	})
}

// listFailing reads a page of the tasks of a failure group, in an order by created_at. A filter that fits few of them looks at so
// many as a search does, and then says where to go on.
func (s *Store) listFailing(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (taskstate.Page, error) {
	if sortsByUpdated(q) {
		return taskstate.Page{}, fmt.Errorf("list tasks: %w: a list of a failure group has an order by createdAt", ErrInvalid)
	}
	order := orders[q.Sort]
	among := &filters{}
	if q.After != nil {
		at := q.After.At.UTC().Truncate(time.Microsecond)
		among.add(s.queries.Get("Failing"+order), at, at, clean(q.After.ID))
	}
	look := s.queries.Part("FailingEdge", q.FailureGroup)
	place := among.part()
	look.Text += place.Text + "\n" + s.queries.Get("FailingOrder"+order) + " OFFSET ?"
	look.Args = slices.Concat(look.Args, place.Args, []any{1, s.most - 1})
	edges, err := sqldb.ReadAll(ctx, s, "list tasks", look.Text, look.Args, scanPlace)
	if err != nil {
		return taskstate.Page{}, err
	}
	var more *taskstate.Cursor
	if len(edges) > 0 {
		more = &edges[0]
		among.add(s.queries.Get("FailingUpTo"+order), more.At, more.At, more.ID)
	}
	of := q
	of.After = nil
	f := s.filters(of)
	f.add(among.Text.String(), among.Args...)
	f.add(s.queries.Get("FailingOrder"+order), q.Limit)
	list := s.queries.Bind("ListFailing", sqldb.Parts{"scope": s.scope(scope)}, q.FailureGroup)
	list = sqldb.Part{Text: list.Text + f.Text.String(), Args: append(list.Args, f.Args...)}
	page := taskstate.Page{}
	page.Tasks, err = read(ctx, s, "list tasks", func(ctx context.Context, tx taskstate.Tx) ([]taskstate.Task, error) {
		return s.readTasks(ctx, tx, 0, list)
	})
	if len(page.Tasks) < q.Limit {
		page.More = more
	}
	return page, err
}
