package taskstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// maxPage is the most rows of one page.
const maxPage = 200

// filters collects the parts of a list's statement.
type filters struct{ statement.Pieces }

// add appends one part.
func (f *filters) add(part string, args ...any) { f.SQL("\n"+part, args...) }

func (f *filters) part() sqldb.Part { return f.Part() }

// List implements taskstate.Store. A Text that is the id of a task in the list finds that task alone.
// Errors: ErrInvalid for an unknown order or a limit outside 1–200.
func (s *Store) List(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (taskstate.Page, error) {
	if q.Limit < 1 || q.Limit > maxPage {
		return taskstate.Page{}, fmt.Errorf("list tasks: %w: limit %d is not within 1–%d", ErrInvalid, q.Limit, maxPage)
	}
	if _, known := orders[q.Sort]; !known {
		return taskstate.Page{}, fmt.Errorf("list tasks: %w: unknown order %q", ErrInvalid, q.Sort)
	}
	if !namesOurs(q) {
		return taskstate.Page{}, nil
	}
	if q.FailureGroup != "" {
		return s.listFailing(ctx, scope, q)
	}
	if id := strings.ToLower(q.Text); isUUID(id) {
		named := q
		named.Text = ""
		page, err := s.list(ctx, scope, named, s.queries.Part("ListID", id))
		if err != nil || len(page.Tasks) > 0 {
			return page, err
		}
	}
	var edge *taskstate.Cursor
	if searches(q) {
		var err error
		if edge, err = s.edge(ctx, scope, q); err != nil {
			return taskstate.Page{}, err
		}
	}
	if byCalls(q) && (edge != nil || !searches(q)) { // a search of few tasks reads all of them
		straight := false
		if edge == nil {
			var none bool
			var err error
			if straight, none, err = s.straight(ctx, scope, q); err != nil || none {
				return taskstate.Page{}, err
			}
		}
		if !straight {
			if page, found, err := s.listCalls(ctx, scope, q); err != nil || found {
				return page, err
			}
		}
	}
	if edge == nil || sortsByUpdated(q) {
		return s.list(ctx, scope, q, sqldb.Part{})
	}
	page, err := s.list(ctx, scope, q, s.queries.Part("ListUpTo"+orders[q.Sort], edge.At, edge.At, edge.ID))
	if len(page.Tasks) < q.Limit {
		page.More = edge
	}
	return page, err
}

// searches reports whether no index finds the rows of a list among those of its user, base and times.
func searches(q taskstate.Query) bool {
	return q.DocumentID == "" && (q.Text != "" || q.Stage != "" || q.Type != "" || q.Workflow != "" || q.Code != "" || q.Error != "" ||
		q.FileName != "" || q.AttemptsFrom > 0 || q.AttemptsBelow > 0)
}

// namesOurs reports whether what is compared with ids and names of ours can be one: they are ASCII, and MySQL refuses other comparisons.
func namesOurs(q taskstate.Query) bool {
	return sqldb.ASCII(q.KnowledgeBase) && sqldb.ASCII(q.DocumentID) && sqldb.ASCII(q.FailureGroup) && sqldb.ASCII(q.Code) &&
		sqldb.ASCII(q.Type) && sqldb.ASCII(q.Workflow)
}

// edge is the last of the first tasks of user, base and times of creation that a search looks at, in an order by created_at from
// its cursor on; nil when there are not so many.
func (s *Store) edge(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (*taskstate.Cursor, error) {
	of := taskstate.Query{UserID: q.UserID, KnowledgeBase: q.KnowledgeBase, CreatedAfter: q.CreatedAfter, CreatedBefore: q.CreatedBefore}
	if !sortsByUpdated(q) {
		of.Sort, of.After = q.Sort, q.After
	}
	f := s.filters(of)
	f.add(s.queries.Get("ListOrder"+orders[of.Sort]), 1)
	f.add("OFFSET ?", s.most-1)
	look := s.queries.Bind("ListEdge", sqldb.Parts{"scope": s.scope(scope), "filters": f.part()})
	found, err := read(ctx, s, "list tasks", func(ctx context.Context, tx taskstate.Tx) ([]taskstate.Cursor, error) {
		return sqldb.Collect(ctx, tx, scanPlace, look.Text, look.Args...)
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// scanPlace reads a row of ListEdge.
func scanPlace(rows *sql.Rows) (c taskstate.Cursor, err error) {
	var at taskstate.DBTime
	err = rows.Scan(&at, &c.ID)
	c.At = at.Time
	return c, err
}

// list reads a page from the table as it is; also is one more filter.
func (s *Store) list(ctx context.Context, scope taskstate.Scope, q taskstate.Query, also sqldb.Part) (taskstate.Page, error) {
	tasks, err := read(ctx, s, "list tasks", func(ctx context.Context, tx taskstate.Tx) ([]taskstate.Task, error) {
		return s.readTasks(ctx, tx, 0, s.listStatement(scope, q, also))
	})
	return taskstate.Page{Tasks: tasks}, err
}

// listStatement is the statement of a list.
func (s *Store) listStatement(scope taskstate.Scope, q taskstate.Query, also sqldb.Part) sqldb.Part {
	f := s.filters(q)
	f.add(also.Text, also.Args...)
	f.add(s.queries.Get("ListOrder"+orders[q.Sort]), q.Limit)
	list := s.queries.Bind("List", sqldb.Parts{"scope": s.scope(scope)})
	return sqldb.Part{Text: list.Text + f.Text.String(), Args: append(list.Args, f.Args...)}
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
		f.add(s.queries.List("ListStatuses", len(q.Statuses)), namesOf(q.Statuses)...)
	}
	for _, p := range []struct{ name, value string }{
		{"ListBase", q.KnowledgeBase}, {"ListDocument", q.DocumentID}, {"ListStage", string(q.Stage)}, {"ListUser", clean(q.UserID)},
		{"ListType", q.Type}, {"ListWorkflow", q.Workflow}, {"ListCode", q.Code},
	} {
		if p.value != "" {
			f.add(s.queries.Get(p.name), p.value)
		}
	}
	if like := likePattern(q.Text); q.Text != "" && sqldb.ASCII(q.Text) {
		f.add(s.queries.Get("ListText"), like, like, like, like)
	} else if q.Text != "" {
		f.add(s.queries.Get("ListTextBeyond"), like, like, like)
	}
	for _, p := range []struct{ name, text string }{{"ListError", q.Error}, {"ListFileName", q.FileName}} {
		if p.text != "" {
			f.add(s.queries.Get(p.name), likePattern(p.text))
		}
	}
	if q.AttemptsFrom > 0 {
		f.add(s.queries.Get("ListAttemptsFrom"), q.AttemptsFrom)
	}
	if q.AttemptsBelow > 0 {
		f.add(s.queries.Get("ListAttemptsBelow"), q.AttemptsBelow)
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

// namesOf are statuses as rows have them.
func namesOf(statuses []taskstate.Status) []any {
	names := make([]any, len(statuses))
	for i, status := range statuses {
		names[i] = string(status)
	}
	return names
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
