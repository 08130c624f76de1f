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
// A list of a status by created_at is put together from its calls too, where these are few: the table has its tasks anywhere. The newest
// tasks need the last of them only, for no task is younger than a call that changed it.

// listBudget is how many tasks are looked at for a page before the table is read as it is: its rare tasks stand far apart then.
const listBudget = 20_000

// newestBudget is how many tasks of the last calls are looked at for the newest ones, before all calls are read.
const newestBudget = 5_000

// searchBudget is how many tasks a search looks at for a page, among those of a user, a base and times; by updated_at half of it in the
// statuses that do not wake, and a quarter in each other. An index of any part of a text is more to write than all else of a task.
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

func (s *Store) amounts(ctx context.Context, scope taskstate.Scope, q taskstate.Query) (amounts, error) {
	if !slices.ContainsFunc(q.Statuses, open) {
		// Of tasks that wait there may be as many calls. Without these the others are no fewer than they are.
		a, err := s.amountsWith(ctx, scope, q, resting())
		if err != nil || len(q.Statuses) > 0 || a.mine >= listBudget {
			return a, err
		}
	}
	return s.amountsWith(ctx, scope, q, taskstate.Statuses())
}

// amountsWith are the amounts by what is counted and the calls that wake of some statuses.
func (s *Store) amountsWith(ctx context.Context, scope taskstate.Scope, q taskstate.Query, waking []taskstate.Status) (a amounts, err error) {
	all, err := s.counts(ctx, taskstate.System(), "", waking)
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
		if mine, err = s.counts(ctx, of, q.KnowledgeBase, waking); err != nil {
			return a, err
		}
	}
	a.all, a.allWanted = sums(all, q.Statuses)
	a.mine, a.wanted = sums(mine, q.Statuses)
	return a, nil
}

// sums adds numbers by status: all of them, and those of the statuses that are wanted; none named: all are.
func sums(counts map[taskstate.Status]int64, statuses []taskstate.Status) (all, wanted int64) {
	for status, n := range counts {
		all += n
		if len(statuses) == 0 || slices.Contains(statuses, status) {
			wanted += n
		}
	}
	return all, wanted
}

// open reports whether tasks of a status wake: each of them.
func open(status taskstate.Status) bool {
	return !status.Terminal() && status != taskstate.StatusSuspended
}

// resting are the statuses whose tasks do not wake.
func resting() []taskstate.Status { return slices.DeleteFunc(taskstate.Statuses(), open) }

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
	down   bool      // newest calls first
	sorted bool      // by updated_at
	newest bool      // by created_at, the newest first
	search bool      // what was found before the budget was used up is enough
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
			newest: q.Sort == "" || q.Sort == taskstate.SortCreatedDesc,
			search: sortsByUpdated(q) && searches(q), low: call.Beginning, high: call.End, budget: listBudget,
		}
		if w.search {
			w.budget = max(1, s.most/2)
		}
		w.bound()
		page, found = taskstate.Page{}, false
		asked := q.Statuses
		if len(asked) == 0 {
			asked = taskstate.Statuses()
		}
		// Those that do not wake come first: they bound what is worth a look.
		if err := w.rest(ctx, slices.DeleteFunc(slices.Clone(asked), open)); err != nil || w.budget < 0 {
			return err
		}
		for _, status := range slices.Backward(taskstate.Statuses()) {
			if !open(status) || !slices.Contains(asked, status) {
				continue
			}
			if w.search {
				w.budget = max(1, s.most/4)
			}
			if err := w.waits(ctx, status); err != nil || w.budget < 0 && !w.search {
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
	if made := w.q.CreatedAfter.UTC().Truncate(time.Microsecond).Add(-clockSlack); made.After(w.low) {
		w.low = made
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

// rest collects the tasks of statuses that do not wake.
func (w *walk) rest(ctx context.Context, statuses []taskstate.Status) error {
	if w.sorted || boundsUpdated(w.q) {
		return w.calls(ctx, w.low, statuses...)
	}
	if w.newest && w.q.CreatedBefore.IsZero() && !searches(w.q) {
		w.budget = newestBudget
		if err := w.calls(ctx, w.low, statuses...); err != nil || w.budget >= 0 {
			w.budget += listBudget - newestBudget
			return err
		}
		w.found = nil
	}
	w.budget = listBudget
	for _, status := range statuses {
		if err := w.all(ctx, status); err != nil || w.budget < 0 {
			return err
		}
	}
	return nil
}

// waits collects the tasks of a status that wake. Where these are few, none else is looked at.
func (w *walk) waits(ctx context.Context, status taskstate.Status) error {
	if !w.sorted && !boundsUpdated(w.q) {
		return w.all(ctx, status)
	}
	low := w.low
	if status == taskstate.StatusRunning || !w.sorted || len(w.found) < w.q.Limit { // else the page is full: few calls are late enough
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
	}
	return w.calls(ctx, low, status)
}

// all collects from all calls of a status, of those that wait from all that wake, unless they name more tasks than
// the budget: then not one of these is looked at.
func (w *walk) all(ctx context.Context, status taskstate.Status) error {
	name := "CallsUp"
	if open(status) {
		name = "Waking"
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
	// clockSlack is more than the database's clock goes back: so much younger than a call may a task be that it changed.
	clockSlack = time.Minute
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

// calls collects from the calls of statuses by their time, from one end of the walk's times to the other, none before low.
func (w *walk) calls(ctx context.Context, low time.Time, statuses ...taskstate.Status) error {
	if low.Before(w.low) {
		low = w.low
	}
	left := make([]*course, len(statuses))
	for i, status := range statuses {
		left[i] = &course{status: status, name: "CallsUp", place: call.Call{At: low}, size: call.FirstPage}
		if w.down {
			left[i].name, left[i].place = "CallsDown", call.Call{At: w.high, No: math.MaxInt64}
		}
	}
	for {
		for _, c := range left {
			if err := c.read(ctx, w); err != nil {
				return err
			}
		}
		left = slices.DeleteFunc(left, func(c *course) bool { return len(c.next) == 0 })
		if len(left) == 0 {
			return nil
		}
		c := slices.MinFunc(left, func(a, b *course) int {
			if w.down {
				a, b = b, a
			}
			return a.next[0].At.Compare(b.next[0].At)
		})
		at := c.next[0].At
		if at.Before(low) || at.After(w.high) || w.enough(at) {
			return nil
		}
		if w.search && w.budget == 0 && !at.Equal(w.start()) { // else the next page would begin where this one did
			w.stop(at)
			return nil
		}
		n := call.Together(c.next)
		if err := w.among(ctx, c.status, c.next[:n], w.sorted || boundsUpdated(w.q)); err != nil || w.budget < 0 {
			return err
		}
		c.next = c.next[n:]
	}
}

// course is the way through the calls of a status by their time.
type course struct {
	status taskstate.Status
	name   string // of the statement
	place  call.Call
	size   int
	next   []call.Call // that were read and not looked at
	ended  bool        // there are no others
}

// read reads the next calls when none is left of those before.
func (c *course) read(ctx context.Context, w *walk) (err error) {
	if len(c.next) > 0 || c.ended {
		return nil
	}
	c.next, err = sqldb.Collect(ctx, w.tx, call.Scan, w.s.queries.Get(c.name), string(c.status), c.place.At, c.place.At, c.place.No, c.size)
	if c.ended = len(c.next) < c.size; len(c.next) > 0 {
		c.place = c.next[len(c.next)-1]
	}
	c.size = min(2*c.size, call.MostPage)
	return err
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
	if !last { // a call before it may have named a task already
		for _, t := range w.found {
			delete(made, t.id)
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

// enough reports whether a page's tasks stand before all that was changed at a time, and then in the walk's order.
func (w *walk) enough(at time.Time) bool {
	switch {
	case w.sorted:
	case w.newest:
		at = at.Add(clockSlack)
	default:
		return false
	}
	n := 0
	for _, t := range w.found {
		if order := w.key(t).Compare(at); order > 0 && w.down || order < 0 && !w.down {
			n++
		}
	}
	return n >= w.q.Limit
}

// key is the time by which the list is sorted.
func (w *walk) key(t listed) time.Time {
	if w.sorted {
		return t.updated
	}
	return t.created
}

// page reads the tasks of the page.
func (w *walk) page(ctx context.Context) (page taskstate.Page, err error) {
	more := w.cut()
	up := w.q.Sort == taskstate.SortUpdated || w.q.Sort == taskstate.SortCreated
	slices.SortFunc(w.found, func(a, b listed) int {
		if up {
			return cmp.Or(w.key(a).Compare(w.key(b)), cmp.Compare(a.id, b.id))
		}
		return cmp.Or(w.key(b).Compare(w.key(a)), cmp.Compare(b.id, a.id))
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
