package taskstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Tasks are counted by status in ingest_task_count, and by user, knowledge base and status in ingest_task_owner. No change of a task
// writes to either: its call says what it moved, and is counted when its waking ends (waking.go). So the number of tasks is what is
// counted and what calls that wake say, read by one statement.

// whose is who has a task: a user and a knowledge base, which is empty for a task without a document.
type whose struct {
	User string `json:"user"`
	Base string `json:"base"`
}

func whoseIs(t *task) whose { return whose{t.UserID, t.KnowledgeBase} }

func (o whose) compare(p whose) int {
	return cmp.Or(cmp.Compare(o.User, p.User), cmp.Compare(o.Base, p.Base))
}

// has reports whether p is among those that o names; empty fields name any.
func (o whose) has(p whose) bool {
	return (o.User == "" || o.User == p.User) && (o.Base == "" || o.Base == p.Base)
}

// userOf is whose tasks a scope has; empty: all users'.
func userOf(scope taskstate.Scope) string {
	if scope.All() {
		return ""
	}
	return scope.UserID
}

// owned is an element of a call's owners.
type owned struct {
	whose
	N int64 `json:"n"`
}

// owners is what a call's row says of whose tasks it moved; nil where it changed no status.
func owners(log []logRow) any {
	if log[0].from == log[0].to {
		return nil
	}
	n := map[whose]int64{}
	for i := range log {
		n[log[i].whose]++
	}
	out := make([]owned, 0, len(n))
	for _, o := range slices.SortedFunc(maps.Keys(n), whose.compare) {
		out = append(out, owned{o, n[o]})
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // of texts and numbers
	}
	return string(text)
}

// kept is a row of ingest_task_owner but for its number.
type kept struct {
	whose
	status taskstate.Status
}

// counts are numbers to add, by status and by owner.
type counts struct {
	all    map[taskstate.Status]int64
	owners map[kept]int64
}

func newCounts() counts { return counts{map[taskstate.Status]int64{}, map[kept]int64{}} }

// move adds what a call moved.
func (n counts) move(c call) {
	n.all[c.to] += c.tasks
	n.all[c.from] -= c.tasks
	eachOwned(c.owners, func(o owned) {
		n.owners[kept{o.whose, c.to}] += o.N
		n.owners[kept{o.whose, c.from}] -= o.N
	})
}

// eachOwned goes through the owners of a call. Those that cannot be read, of a damaged row, count nothing: fsck finds them (I41), and
// recovery goes on.
func eachOwned(text string, f func(owned)) {
	var all []owned
	if json.Unmarshal([]byte(text), &all) != nil {
		return
	}
	for _, o := range all {
		f(o)
	}
}

// count writes counts. Rows are written in the order of their keys.
func (s *Store) count(ctx context.Context, tx taskstate.Tx, n counts) error {
	for _, status := range slices.Sorted(maps.Keys(n.all)) {
		if add := n.all[status]; status != "" && add != 0 {
			if err := execAll(ctx, tx, 1, sqldb.Part{Text: s.queries.Get("CountAdd"), Args: []any{add, string(status)}}); err != nil {
				return fmt.Errorf("count tasks: %w", err)
			}
		}
	}
	var rows [][]any
	for _, k := range slices.SortedFunc(maps.Keys(n.owners), func(a, b kept) int {
		return cmp.Or(a.whose.compare(b.whose), cmp.Compare(a.status, b.status))
	}) {
		if add := n.owners[k]; k.status != "" && add != 0 {
			rows = append(rows, []any{k.User, k.Base, string(k.status), add})
		}
	}
	for part := range slices.Chunk(rows, maxBatch) {
		if _, err := tx.ExecContext(ctx, s.queries.Rows("CountOwner", len(part)), slices.Concat(part...)...); err != nil {
			return fmt.Errorf("count tasks of users: %w", err)
		}
	}
	return nil
}

// countInto reads rows of a status and a number.
func countInto(out map[taskstate.Status]int64) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var status taskstate.Status
		var n int64
		err := rows.Scan(&status, &n)
		out[status] = n
		return err
	}
}

// Counts implements taskstate.Store. It looks at no task.
func (s *Store) Counts(ctx context.Context, scope taskstate.Scope, base string) (map[taskstate.Status]int64, error) {
	user := userOf(scope)
	if user == "" && base == "" {
		return read(ctx, s, "count tasks", func(ctx context.Context, tx taskstate.Tx) (map[taskstate.Status]int64, error) {
			out := map[taskstate.Status]int64{}
			return out, sqldb.Each(ctx, tx, countInto(out), s.queries.Get("Counts"))
		})
	}
	parts := sqldb.Parts{"scope": {}, "base": {}, "owners": {}}
	if base != "" {
		parts["base"] = s.queries.Part("OwnedIn", base)
	}
	all, err := s.countsOf(ctx, user, whose{user, base}, parts)
	out := map[taskstate.Status]int64{}
	for at, n := range all {
		if base == "" || base == at.Base {
			out[at.status] += n
		}
	}
	return positive(out), err
}

// CountsIn implements taskstate.Reader.
func (s *Store) CountsIn(ctx context.Context, scope taskstate.Scope, bases []string) (map[string]map[taskstate.Status]int64, error) {
	user := userOf(scope)
	parts := sqldb.Parts{"scope": {}, "base": s.queries.Bind("OwnedAmong", sqldb.Parts{"list": sqldb.List(bases)}), "owners": {}}
	all, err := s.countsOf(ctx, user, whose{User: user}, parts)
	out := map[string]map[taskstate.Status]int64{}
	for at, n := range all {
		if !slices.Contains(bases, at.Base) {
			continue
		}
		if out[at.Base] == nil {
			out[at.Base] = map[taskstate.Status]int64{}
		}
		out[at.Base][at.status] += n
	}
	for base := range out {
		positive(out[base])
	}
	return out, err
}

// positive leaves out what is nothing.
func positive(counts map[taskstate.Status]int64) map[taskstate.Status]int64 {
	maps.DeleteFunc(counts, func(status taskstate.Status, n int64) bool { return status == "" || n == 0 })
	return counts
}

// countsOf counts the tasks of a user, empty: of all, by base and status. parts bound the rows that are read, and of those of calls not
// all are asked for.
func (s *Store) countsOf(ctx context.Context, user string, of whose, parts sqldb.Parts) (map[kept]int64, error) {
	if user != "" {
		parts["scope"] = s.queries.Part("OwnedBy", user)
	}
	if of != (whose{}) {
		named, err := of.named()
		if err != nil {
			return nil, err
		}
		parts["owners"] = s.queries.Part("OwnersNamed", likePattern(named))
	}
	query := s.queries.Bind("CountsOf", parts)
	return read(ctx, s, "count tasks", func(ctx context.Context, tx taskstate.Tx) (map[kept]int64, error) {
		out := map[kept]int64{}
		add := func(base string, status taskstate.Status, n int64) {
			out[kept{whose{Base: base}, status}] += n
		}
		return out, sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			var base, owners string
			var to, from taskstate.Status
			var n int64
			if err := rows.Scan(&base, &to, &from, &n, &owners); err != nil {
				return err
			}
			add(base, to, n)
			eachOwned(owners, func(o owned) {
				if (whose{User: user}).has(o.whose) {
					add(o.Base, to, o.N)
					add(o.Base, from, -o.N)
				}
			})
			return nil
		}, query.Text, query.Args...)
	})
}

// named is what the owners of a call say when a user, a knowledge base or both are among them.
func (o whose) named() (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	user, err := json.Marshal(o.User)
	if err != nil {
		return "", err
	}
	whole := string(text[1 : len(text)-1]) // "user":…,"base":…
	head := `"user":` + string(user)
	switch {
	case o.Base == "":
		return head + ",", nil
	case o.User == "":
		return whole[len(head):] + ",", nil
	}
	return whole + ",", nil
}

// Count implements taskstate.Reader. It looks at no task where only users, knowledge bases and statuses are asked for.
func (s *Store) Count(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (map[taskstate.Status]int64, error) {
	counts := map[taskstate.Status]int64{}
	if !namesOurs(q) {
		return counts, nil
	}
	only := taskstate.Query{Statuses: q.Statuses, UserID: q.UserID, KnowledgeBase: q.KnowledgeBase, Sort: q.Sort, After: q.After, Limit: q.Limit}
	if user := clean(q.UserID); reflect.DeepEqual(q, only) && (user == "" || scope.All() || user == scope.UserID) {
		if user != "" {
			scope = taskstate.Scope{UserID: user, Role: taskstate.RoleUser}
		}
		all, err := s.Counts(ctx, scope, q.KnowledgeBase)
		for status, n := range all {
			if len(q.Statuses) == 0 || slices.Contains(q.Statuses, status) {
				counts[status] = n
			}
		}
		return counts, err
	}
	q.After, q.Sort = nil, cmp.Or(q.Sort, taskstate.SortCreated)
	name, err := s.countBy(ctx, scope, q)
	if err != nil {
		return nil, err
	}
	parts := sqldb.Parts{"scope": s.scope(scope), "filters": s.filters(q).part()}
	if name == "CountWithout" {
		status := q.Statuses[0]
		q.Statuses = nil
		parts["filters"] = s.filters(q).part()
		query := s.queries.Bind(name, parts, string(status))
		n, err := sqldb.ReadRow(ctx, s, func(row sqldb.Scanner) (n int64, err error) { return n, row.Scan(&n) }, query.Text, query.Args...)
		if counts[status] = n; err != nil {
			return nil, fmt.Errorf("count tasks: %w", err)
		}
		return positive(counts), nil
	}
	var args []any
	if name == "CountFailing" {
		args = []any{q.FailureGroup}
	}
	count := s.queries.Bind(name, parts, args...)
	err = s.Read(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		clear(counts)
		return sqldb.Each(ctx, tx, countInto(counts), count.Text, count.Args...)
	})
	if err != nil {
		return nil, fmt.Errorf("count tasks: %w", err)
	}
	return counts, nil
}

// countBy returns the statement that counts the tasks of q with the fewest looks, by the kept counts: the body of each task and its state,
// or those of tasks in the statuses, or the bodies alone and those of tasks in all other statuses. Measured on MariaDB with a million
// tasks, in the time of one body: a state in their order 1/4, a state by its id 1, a body by its id 3.
func (s *Store) countBy(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (name string, err error) {
	switch {
	case q.FailureGroup != "":
		return "CountFailing", nil
	case len(q.Statuses) == 0, q.DocumentID != "", !q.CreatedAfter.IsZero(), !q.CreatedBefore.IsZero(): // an index has the others
		return "CountMatching", nil
	}
	a, err := s.amounts(ctx, scope, q)
	if err != nil {
		return "", err
	}
	each, wanted := 2*a.mine, a.all/4+3*a.allWanted
	without := a.mine + a.all/4 + 3*(a.all-a.allWanted)
	ofBody := q.Stage == "" && q.AttemptsFrom == 0 && q.AttemptsBelow == 0 && !boundsUpdated(q)
	switch {
	case len(q.Statuses) == 1 && ofBody && without < min(each, wanted):
		return "CountWithout", nil
	case wanted < each:
		return "CountOfStatuses", nil
	}
	return "CountMatching", nil
}
