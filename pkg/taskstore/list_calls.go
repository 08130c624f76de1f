package taskstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/call"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// A list by updated_at is put together from calls: an index of all rows in that order would be written at every change of every
// task. The last call that changed a task has the time that the task says; only heartbeats say later ones, of tasks that run. So
// the calls of a status, in the order of their time, name its tasks in the order of the list, among others that moved on since.
//
// A list of a status by created_at is put together from its calls too, if these are few: the table has its tasks anywhere.

// listBudget is how many tasks are looked at for a page before the table is read as it is: its rare tasks stand far apart then.
const listBudget = 20_000

// searchBudget is how many tasks a search looks at for a page, among those of a user, a base and times, or a quarter of it in each
// status. An index of any part of a text is more to write than all else of a task.
const searchBudget = 5_000

// byCalls reports whether q is a list of calls; the tasks of one document are few and sorted as they are.
func byCalls(q taskstate.Query) bool {
	return q.DocumentID == "" && (sortsByUpdated(q) || boundsUpdated(q) || len(q.Statuses) > 0)
}

// straight reports whether the table shows a page of a user's or a knowledge base's tasks at fewer looks than the calls do, on which all
// users' tasks stand: where they are rare among those, and what is asked for is not rare among them. none reports that the counts know of
// no such task.
func (s *Store) straight(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (straight, none bool, err error) {
	if userOf(scope) == "" && clean(q.UserID) == "" && q.KnowledgeBase == "" {
		return false, false, nil
	}
	a, err := s.amounts(ctx, scope, q)
	if err != nil {
		return false, false, err
	}
	inTable, onCalls := a.mine, a.allWanted
	if page := int64(q.Limit); a.wanted > page { // which ends the look of whoever reads in the list's order
		if sortsByUpdated(q) {
			onCalls = page * a.allWanted / a.wanted
		} else {
			inTable = page * a.mine / a.wanted
		}
	}
	return inTable < onCalls, a.wanted == 0, nil
}

// amounts are numbers of tasks, by the kept counts: of the user and the knowledge base that a list names and of all, and of both those
// in its statuses.
type amounts struct{ mine, wanted, all, allWanted int64 }

func (s *Store) amounts(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (a amounts, err error) {
	all, err := s.Counts(ctx, taskstate.System(), "")
	if err != nil {
		return a, err
	}
	mine := all
	user := cmp.Or(userOf(scope), clean(q.UserID))
	if user != "" || q.KnowledgeBase != "" {
		of := scope
		if user != "" {
			of = taskstate.Scope{UserID: user, Role: taskstate.RoleUser}
		}
		if mine, err = s.Counts(ctx, of, q.KnowledgeBase); err != nil {
			return a, err
		}
	}
	for status, n := range all {
		a.mine, a.all = a.mine+mine[status], a.all+n
		if len(q.Statuses) == 0 || slices.Contains(q.Statuses, status) {
			a.wanted, a.allWanted = a.wanted+mine[status], a.allWanted+n
		}
	}
	return a, nil
}

// boundsUpdated reports whether updated_at has bounds.
func boundsUpdated(q taskstate.Query) bool {
	return !q.UpdatedAfter.IsZero() || !q.UpdatedBefore.IsZero()
}

func sortsByUpdated(q taskstate.Query) bool {
	return q.Sort == taskstate.SortUpdated || q.Sort == taskstate.SortUpdatedDesc
}

// listed is a task of a list.
type listed struct {
	id               string
	updated, created time.Time
}

// walk collects the ids of a page.
type walk struct {
	s      *Store
	tx     taskstate.Tx
	scope  taskstate.Scope
	q      taskstate.Query
	where  *filters
	down   bool      // newest first
	sorted bool      // by updated_at: a page is enough
	search bool      // and so is what was found before the budget was used up
	more   time.Time // where a search ended; zero: it has seen all
	low    time.Time
	high   time.Time
	budget int
	found  []listed
}

// listCalls reads a page; not found: that would take more than the budget.
func (s *Store) listCalls(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (page taskstate.Page, found bool, err error) {
	err = s.Snapshot(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		w := &walk{
			s: s, tx: tx, scope: scope, q: q, where: s.filters(q), down: q.Sort != taskstate.SortUpdated, sorted: sortsByUpdated(q),
			search: sortsByUpdated(q) && searches(q), low: call.Beginning, high: call.End, budget: listBudget,
		}
		w.bound()
		page, found = taskstate.Page{}, false
		for _, status := range slices.Backward(taskstate.Statuses()) { // what has ended first: it bounds what is worth a look
			if len(q.Statuses) > 0 && !slices.Contains(q.Statuses, status) {
				continue
			}
			if w.search {
				w.budget = max(1, s.most/4) // four of the statuses have many tasks
			}
			if err := w.status(ctx, status); err != nil || w.budget < 0 && !w.search {
				return err
			}
		}
		found = true
		var err error
		page, err = w.page(ctx)
		return err
	})
	if err != nil {
		return taskstate.Page{}, false, fmt.Errorf("list tasks: %w", err)
	}
	return page, found, nil
}

// bound narrows the times of the walk to those that the list may have.
func (w *walk) bound() {
	if w.q.UpdatedAfter.After(w.low) {
		w.low = w.q.UpdatedAfter.UTC().Truncate(time.Microsecond)
	}
	if !w.q.UpdatedBefore.IsZero() {
		w.high = w.q.UpdatedBefore.UTC().Truncate(time.Microsecond)
	}
	if w.q.After == nil || !w.sorted {
		return
	}
	at := w.q.After.At.UTC().Truncate(time.Microsecond)
	if w.down && at.Before(w.high) {
		w.high = at
	} else if !w.down && at.After(w.low) {
		w.low = at
	}
}

// status collects the tasks of one status. Each of those that have not ended wakes; where these are few, none else is looked at.
func (w *walk) status(ctx context.Context, status taskstate.Status) error {
	if !w.sorted && !boundsUpdated(w.q) {
		return w.all(ctx, status)
	}
	low := w.low
	switch status {
	case taskstate.StatusQueued, taskstate.StatusRetrying, taskstate.StatusRunning:
		if status != taskstate.StatusRunning && w.sorted && len(w.found) >= w.q.Limit {
			break // the page is full: few calls are late enough
		}
		all, first, err := w.waking(ctx, status)
		if err != nil || all || w.budget < 0 {
			return err
		}
		if status == taskstate.StatusRunning { // a heartbeat says later times than a call
			w.budget = -1
			return nil
		}
		if status == taskstate.StatusQueued && low.Before(first.Add(-queuedSlack)) {
			low = first.Add(-queuedSlack)
		}
	case taskstate.StatusNone, taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusSuspended, taskstate.StatusCancelled:
	}
	return w.calls(ctx, status, low)
}

// all collects from all calls of a status, of those that have not ended from all that wake, unless they name more tasks than
// the budget: then not one of these is looked at.
func (w *walk) all(ctx context.Context, status taskstate.Status) error {
	name := "CallsUp"
	switch status {
	case taskstate.StatusQueued, taskstate.StatusRetrying, taskstate.StatusRunning:
		name = "Waking"
	case taskstate.StatusNone, taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusSuspended, taskstate.StatusCancelled:
	}
	calls, all, err := w.collect(ctx, name, status, w.budget)
	switch {
	case err != nil:
		return err
	case !all:
		w.budget = -1
		return nil
	}
	return w.among(ctx, status, calls, false)
}

// collect reads the calls of a status that a statement has; all is false, and some are missing, when they name more than most tasks.
func (w *walk) collect(ctx context.Context, name string, status taskstate.Status, most int) (calls []call.Call, all bool, err error) {
	place, n := call.Call{At: call.Beginning}, 0
	for size := call.FirstPage; ; size = min(2*size, call.MostPage) {
		page, err := sqldb.Collect(ctx, w.tx, call.Scan, w.s.queries.Get(name), string(status), place.At, place.At, place.No, size)
		if err != nil {
			return nil, false, err
		}
		for _, c := range page {
			calls, n = append(calls, c), n+len(c.IDs)
		}
		if n > most {
			return calls, false, nil
		}
		if len(page) < size {
			return calls, true, nil
		}
		place = page[len(page)-1]
	}
}

const (
	// fewWake is how many tasks of calls that wake are looked at before calls are taken by their time.
	fewWake = 2_000
	// queuedSlack is more than a QUEUED task may wake after its last change: the longest wait between two promises, or a lease.
	queuedSlack = time.Hour
)

// waking collects from all calls of a status that wake, or says that they are too many, and when the first of them wakes.
func (w *walk) waking(ctx context.Context, status taskstate.Status) (all bool, first time.Time, err error) {
	most := fewWake
	if status == taskstate.StatusRunning {
		most = max(most, w.budget)
	}
	calls, all, err := w.collect(ctx, "Waking", status, most)
	if err != nil {
		return false, first, err
	}
	if !all {
		return false, calls[0].At, nil
	}
	for group := range call.Groups(calls) {
		if err := w.among(ctx, status, group, false); err != nil || w.budget < 0 {
			return false, first, err
		}
	}
	return true, first, nil
}

// calls collects from the calls of a status by their time, from one end of the walk's times to the other, none before low.
func (w *walk) calls(ctx context.Context, status taskstate.Status, low time.Time) error {
	if low.Before(w.low) {
		low = w.low
	}
	name, place := "CallsUp", call.Call{At: low}
	if w.down {
		name, place = "CallsDown", call.Call{At: w.high, No: math.MaxInt64}
	}
	for size := call.FirstPage; ; size = min(2*size, call.MostPage) {
		page, err := sqldb.Collect(ctx, w.tx, call.Scan, w.s.queries.Get(name), string(status), place.At, place.At, place.No, size)
		if err != nil || len(page) == 0 {
			return err
		}
		place = page[len(page)-1]
		for group := range call.Groups(page) {
			at := group[0].At
			if at.Before(low) || at.After(w.high) || w.enough(at) {
				return nil
			}
			if w.search && w.budget == 0 && !at.Equal(w.start()) { // else the next page would begin where this one did
				w.stop(at)
				return nil
			}
			if err := w.among(ctx, status, group, true); err != nil || w.budget < 0 {
				return err
			}
		}
		if len(page) < size {
			return nil
		}
	}
}

// among collects those tasks of calls that are in the status and pass the filters; last: and were changed last by that call.
func (w *walk) among(ctx context.Context, status taskstate.Status, group []call.Call, last bool) error {
	made := map[string]time.Time{}
	for _, c := range group {
		for _, id := range c.IDs {
			if at, twice := made[id]; !twice || c.At.After(at) {
				made[id] = c.At
			}
		}
	}
	ids := make([]string, 0, len(made))
	for id := range made {
		ids = append(ids, id)
	}
	if w.budget -= len(ids); w.search {
		w.budget = max(w.budget, 0)
	} else if w.budget < 0 {
		return nil
	}
	slices.Sort(ids)
	for chunk := range slices.Chunk(ids, statement.MaxRows) {
		query := w.s.queries.Bind("ListAmong", sqldb.Parts{
			"list": sqldb.List(w.s.rawIDs(chunk)), "scope": w.s.scope(w.scope), "filters": w.where.part(),
		}, string(status))
		some, err := sqldb.Collect(ctx, w.tx, scanListed, query.Text, query.Args...)
		if err != nil {
			return err
		}
		for _, t := range some {
			if !last || t.updated.Equal(made[t.id]) {
				w.found = append(w.found, t)
			}
		}
	}
	return nil
}

// start is where the walk's times begin.
func (w *walk) start() time.Time {
	if w.down {
		return w.high
	}
	return w.low
}

// stop ends a search with what changed before it comes to a time; so the other statuses are not looked at beyond that.
func (w *walk) stop(at time.Time) {
	w.more = at
	if w.down {
		w.low = at
	} else {
		w.high = at
	}
}

// No task has one of these ids, which stand before and after those of all tasks.
const (
	firstID = "00000000-0000-0000-0000-000000000000"
	lastID  = "ffffffff-ffff-ffff-ffff-ffffffffffff"
)

// cut drops what a search found beyond its end, and returns where to go on.
func (w *walk) cut() *taskstate.Cursor {
	if w.more.IsZero() {
		return nil
	}
	w.found = slices.DeleteFunc(w.found, func(t listed) bool {
		return w.down && !t.updated.After(w.more) || !w.down && !t.updated.Before(w.more)
	})
	if w.down {
		return &taskstate.Cursor{At: w.more, ID: lastID}
	}
	return &taskstate.Cursor{At: w.more, ID: firstID}
}

// scanListed reads a row of ListAmong.
func scanListed(rows *sql.Rows) (t listed, err error) {
	var updated, created taskstate.DBTime
	err = rows.Scan(&t.id, &updated, &created)
	t.updated, t.created = updated.Time, created.Time
	return t, err
}

// enough reports whether a page's tasks stand before all that was changed at a time.
func (w *walk) enough(at time.Time) bool {
	if !w.sorted {
		return false
	}
	n := 0
	for _, t := range w.found {
		if order := t.updated.Compare(at); order > 0 && w.down || order < 0 && !w.down {
			n++
		}
	}
	return n >= w.q.Limit
}

// page reads the tasks of the page.
func (w *walk) page(ctx context.Context) (page taskstate.Page, err error) {
	more := w.cut()
	key := func(t listed) time.Time {
		if w.sorted {
			return t.updated
		}
		return t.created
	}
	up := w.q.Sort == taskstate.SortUpdated || w.q.Sort == taskstate.SortCreated
	slices.SortFunc(w.found, func(a, b listed) int {
		if up {
			return cmp.Or(key(a).Compare(key(b)), cmp.Compare(a.id, b.id))
		}
		return cmp.Or(key(b).Compare(key(a)), cmp.Compare(b.id, a.id))
	})
	w.found = slices.CompactFunc(w.found, func(a, b listed) bool { return a.id == b.id })
	w.found = w.found[:min(len(w.found), w.q.Limit)]
	if len(w.found) < w.q.Limit {
		page.More = more
	}
	if len(w.found) == 0 {
		return page, nil
	}
	ids, place := make([]string, len(w.found)), make(map[string]int, len(w.found))
	for i, t := range w.found {
		ids[i], place[t.id] = t.id, i
	}
	page.Tasks, err = w.s.readTasks(ctx, w.tx, len(ids), w.s.queries.Bind("ListOf", sqldb.Parts{"list": sqldb.List(ids)}))
	slices.SortFunc(page.Tasks, func(a, b task) int { return cmp.Compare(place[a.ID], place[b.ID]) })
	return page, err
}
