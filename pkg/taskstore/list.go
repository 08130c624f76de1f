package taskstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// maxPage is the most rows of one page.
const maxPage = 200

// filters collects the parts of a list's statement with their arguments.
type filters struct {
	text strings.Builder
	args []any
}

// add appends one part.
func (f *filters) add(part string, args ...any) {
	f.text.WriteString("\n" + part)
	f.args = append(f.args, args...)
}

// List implements taskstate.Store.
// Errors: ErrInvalid for an unknown order or a limit outside 1–200.
func (s *Store) List(ctx context.Context, scope taskstate.Scope, q taskstate.Query) ([]taskstate.Task, error) {
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, fmt.Errorf("list tasks: %w: limit %d is not within 1–%d", ErrInvalid, q.Limit, maxPage)
	}
	var f filters
	query, args := s.scoped(s.queries.Get("List"), nil, scope)
	f.text.WriteString(query)
	f.args = args
	s.where(&f, q)
	if err := s.page(&f, q); err != nil {
		return nil, err
	}
	var out []taskstate.Task
	err := s.read(ctx, "list tasks", func(ctx context.Context, tx *session) error {
		rows, err := tx.QueryContext(ctx, f.text.String(), f.args...)
		if err != nil {
			return err
		}
		out, err = scanTasks(rows, 0)
		return err
	})
	return out, err
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
	if q.Text != "" {
		like := likePattern(q.Text)
		f.add(s.queries.Get("ListText"), like, like, like)
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

// page adds cursor, order and limit.
func (s *Store) page(f *filters, q taskstate.Query) error {
	var kind string
	switch q.Sort {
	case taskstate.SortCreated:
		kind = "CreatedUp"
	case taskstate.SortCreatedDesc, "":
		kind = "CreatedDown"
	case taskstate.SortUpdated:
		kind = "UpdatedUp"
	case taskstate.SortUpdatedDesc:
		kind = "UpdatedDown"
	default:
		return fmt.Errorf("list tasks: %w: unknown order %q", ErrInvalid, q.Sort)
	}
	if q.After != nil {
		at := q.After.At.UTC().Truncate(time.Microsecond)
		f.add(s.queries.Get("List"+kind), at, at, clean(q.After.ID))
	}
	f.add(s.queries.Get("ListOrder"+kind), q.Limit)
	return nil
}

// likePattern finds text anywhere, its own wildcards taken literally (the statement says ESCAPE '!').
func likePattern(text string) string {
	return "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(clean(text)) + "%"
}
