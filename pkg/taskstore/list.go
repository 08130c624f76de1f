package taskstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// maxPage is the most rows of one page.
const maxPage = 200

// filters collects the parts of a list's statement.
type filters struct{ pieces }

// add appends one part.
func (f *filters) add(part string, args ...any) { f.sql("\n"+part, args...) }

// List implements taskstate.Store.
// Errors: ErrInvalid for an unknown order or a limit outside 1–200.
func (s *Store) List(ctx context.Context, scope taskstate.Scope, q taskstate.Query) ([]taskstate.Task, error) {
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, fmt.Errorf("list tasks: %w: limit %d is not within 1–%d", ErrInvalid, q.Limit, maxPage)
	}
	if _, known := orders[q.Sort]; !known {
		return nil, fmt.Errorf("list tasks: %w: unknown order %q", ErrInvalid, q.Sort)
	}
	if !sqldb.ASCII(q.KnowledgeBase) || !sqldb.ASCII(q.DocumentID) {
		return nil, nil // no id is like that
	}
	if byCalls(q) {
		if page, found, err := s.listCalls(ctx, scope, q); err != nil || found {
			return page, err
		}
	}
	return read(ctx, s, "list tasks", func(ctx context.Context, tx taskstate.Tx) ([]taskstate.Task, error) {
		return s.readTasks(ctx, tx, 0, s.listStatement(scope, q))
	})
}

// listStatement is the statement of a list.
func (s *Store) listStatement(scope taskstate.Scope, q taskstate.Query) sqldb.Part {
	f := s.filters(q)
	f.add(s.queries.Get("ListOrder"+orders[q.Sort]), q.Limit)
	list := s.queries.Bind("List", sqldb.Parts{"scope": s.scope(scope)})
	return sqldb.Part{Text: list.Text + f.text.String(), Args: append(list.Args, f.args...)}
}

// filters are what rows of a list must be, and its cursor.
func (s *Store) filters(q taskstate.Query) *filters {
	f := &filters{}
	s.where(f, q)
	if q.After != nil {
		at := q.After.At.UTC().Truncate(time.Microsecond)
		f.add(s.queries.Get("List"+orders[q.Sort]), at, at, clean(q.After.ID))
	}
	return f
}

// where adds the filters.
func (s *Store) where(f *filters, q taskstate.Query) {
	if len(q.Statuses) > 0 {
		list := make([]any, len(q.Statuses))
		for i, st := range q.Statuses {
			list[i] = string(st)
		}
		f.add(s.queries.List("ListStatuses", len(list)), list...)
	}
	for _, p := range []struct{ name, value string }{
		{"ListBase", q.KnowledgeBase}, {"ListDocument", q.DocumentID}, {"ListStage", string(q.Stage)},
	} {
		if p.value != "" {
			f.add(s.queries.Get(p.name), p.value)
		}
	}
	if like := likePattern(q.Text); q.Text != "" && sqldb.ASCII(q.Text) {
		f.add(s.queries.Get("ListText"), like, like, like)
	} else if q.Text != "" {
		f.add(s.queries.Get("ListTextBeyond"), like, like)
	}
	for _, p := range []struct {
		name string
		at   time.Time
	}{
		{"ListCreatedAfter", q.CreatedAfter}, {"ListCreatedBefore", q.CreatedBefore},
		{"ListUpdatedAfter", q.UpdatedAfter}, {"ListUpdatedBefore", q.UpdatedBefore},
	} {
		if !p.at.IsZero() {
			f.add(s.queries.Get(p.name), p.at.UTC().Truncate(time.Microsecond))
		}
	}
}

// orders are what the queries of an order end in.
var orders = map[taskstate.Sort]string{
	"": "CreatedDown", taskstate.SortCreatedDesc: "CreatedDown", taskstate.SortCreated: "CreatedUp",
	taskstate.SortUpdatedDesc: "UpdatedDown", taskstate.SortUpdated: "UpdatedUp",
}

// likePattern finds text anywhere, its own wildcards taken literally (the statement says ESCAPE '!').
func likePattern(text string) string {
	return "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(clean(text)) + "%"
}
