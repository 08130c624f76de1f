package taskstore

import (
	"slices"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A list by updated_at, or one bounded by it, is put together of parts: an index of all rows in that order would be written at
// every change of every task. The sweep index, which is written at those anyway, has what has ended and what was just queued in
// that order; few rows are RUNNING; and what is left (retries, promises made again, debts) stands in an index of its own.

// listedPart is the rows of one index or range.
type listedPart struct {
	condition string // name of its query
	args      []any
	from      string // name of the query that begins with its index
	words     *strings.Replacer
}

// What updated_at is called in a part, so that its index serves comparisons and order.
var (
	asUpdated = strings.NewReplacer()
	asWake    = strings.NewReplacer(
		"ORDER BY t.updated_at DESC", "ORDER BY t.wake_at DESC, t.updated_at DESC",
		"ORDER BY t.updated_at", "ORDER BY t.wake_at, t.updated_at",
		"t.updated_at", "t.wake_at",
	)
	asListed = strings.NewReplacer("t.updated_at", "t.listed_at")
)

// endedStatuses are those in which wake_at is never, unless something is still owed.
var endedStatuses = []taskstate.Status{
	taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusSuspended, taskstate.StatusCancelled,
}

// byUpdated reports whether q is a list of parts; the tasks of one document are few and sorted as they are.
func byUpdated(q taskstate.Query) bool {
	bounded := !q.UpdatedAfter.IsZero() || !q.UpdatedBefore.IsZero()
	return q.DocumentID == "" && (bounded || sortsByUpdated(q))
}

func sortsByUpdated(q taskstate.Query) bool {
	return q.Sort == taskstate.SortUpdated || q.Sort == taskstate.SortUpdatedDesc
}

// partsOf are the parts in which rows of these statuses may be; together they hold each row once.
func partsOf(statuses []taskstate.Status) []listedPart {
	wanted := func(s taskstate.Status) bool { return len(statuses) == 0 || slices.Contains(statuses, s) }
	var out []listedPart
	for _, s := range endedStatuses {
		if wanted(s) {
			out = append(out, listedPart{"ListEnded", []any{string(s)}, "ListBySweep", asUpdated})
		}
	}
	if wanted(taskstate.StatusQueued) {
		out = append(out, listedPart{"ListQueued", nil, "ListBySweep", asWake})
	}
	if wanted(taskstate.StatusRunning) {
		out = append(out, listedPart{"ListRunning", nil, "ListBySweep", asUpdated})
	}
	return append(out, listedPart{"ListApart", nil, "ListByListed", asListed})
}

// listParts is the statement: of each part the ids that may stand on the page, then the page of them.
// An index is forced only where no narrower one may serve.
func (s *Store) listParts(scope taskstate.Scope, q taskstate.Query, f *filters, order string) sqldb.Part {
	forced := sortsByUpdated(q) && scope.All() && q.KnowledgeBase == ""
	var texts []string
	var args []any
	for i, p := range partsOf(q.Statuses) {
		parts := sqldb.Parts{
			"from": s.queries.Part("Tasks"), "condition": s.queries.Part(p.condition, p.args...), "scope": s.scope(scope),
			"filters": {Text: p.words.Replace(f.text.String()), Args: f.args}, "alias": {Text: "part" + strconv.Itoa(i)},
		}
		if forced {
			parts["from"] = s.queries.Part(p.from)
		}
		part := s.queries.Bind("ListPart", parts)
		texts, args = append(texts, part.Text), append(args, part.Args...)
	}
	list := s.queries.Bind("ListParts", sqldb.Parts{"parts": {Text: strings.Join(texts, "\nUNION ALL\n"), Args: args}})
	return sqldb.Part{Text: list.Text + "\n" + order, Args: append(list.Args, q.Limit)}
}
