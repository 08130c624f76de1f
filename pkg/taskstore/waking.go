package taskstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A task that wakes is found by its call: the call's row has the time at which the first of its tasks wakes. So no index of the
// state is written at every change of a task. Three rules keep it true:
//   - Whoever gives a task a status or a time to wake writes a call with a time that is not later, in the same transaction. A
//     heartbeat, which only moves the task's time back, does not.
//   - The state says what is true. A call that wakes too early costs a look; none may wake too late.
//   - A call's time is moved or ended by what a plain read of its tasks says: whatever changed one since has a call of its own.
//
// A call is counted when its waking ends (counts.go). So every call that changes a status wakes at least once.

// call is a row of ingest_task_call with what its tasks need.
type call struct {
	no       int64
	at       time.Time // when it wakes, or was made
	ids      []string
	now      time.Time // the database's clock when it was read
	epoch    int64     // and its epoch
	from, to taskstate.Status
	tasks    int64
	owners   string // as its row says it
}

// waker is a state that wakes.
type waker struct {
	id                      string
	wakes, updated, created time.Time // wakes, created: where somebody asked
	fence, owner            int64
}

const (
	firstCalls = 8   // of the first page; each is twice as long as the one before
	mostCalls  = 256 // of a page
)

// beginning is before every time, and end after every one but for that which stands for never.
var (
	beginning = time.Unix(0, 0).UTC()
	end       = time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC)
	neverAt   = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// scanCall reads a call as Waking, WakingOf, CallsUp and CallsDown return it.
func scanCall(rows *sql.Rows) (c call, err error) {
	var at, now taskstate.DBTime
	var raw sql.RawBytes
	if err := rows.Scan(&c.no, &at, &raw, &now, &c.epoch); err != nil {
		return c, err
	}
	c.at, c.now = at.Time, now.Time
	c.ids = make([]string, 0, len(raw)/len(uuid.UUID{}))
	if err := eachID(raw, func(id uuid.UUID) { c.ids = append(c.ids, id.String()) }); err != nil {
		return c, fmt.Errorf("call %d: %w", c.no, err)
	}
	return c, nil
}

// eachID goes through the ids of a call, 16 bytes each.
func eachID(raw []byte, f func(uuid.UUID)) error {
	for one := range slices.Chunk(raw, len(uuid.UUID{})) {
		id, err := uuid.FromBytes(one)
		if err != nil {
			return fmt.Errorf("%d bytes of ids: %w", len(raw), err)
		}
		f(id)
	}
	return nil
}

// scanLocked reads a call as WakingLock returns it.
func scanLocked(rows *sql.Rows) (c call, err error) {
	var at taskstate.DBTime
	err = rows.Scan(&c.no, &at, &c.from, &c.to, &c.tasks, &c.owners)
	c.at = at.Time
	return c, err
}

// ended reports whether no task of a status wakes.
func ended(status taskstate.Status) bool {
	return status == taskstate.StatusSucceeded || status == taskstate.StatusSuspended || status == taskstate.StatusCancelled
}

// wakers reads those tasks of calls that wake in a status, whenever that is. Calls whose tasks stand close together are read as they
// stand: a list of many ids costs the server more than the rows of others between them.
func (s *Store) wakers(ctx context.Context, tx taskstate.Tx, status taskstate.Status, calls []call) (map[string]waker, error) {
	if ended(status) {
		return nil, nil
	}
	var parts []sqldb.Part
	var ids []string
	all := map[string]bool{}
	for _, c := range calls {
		for _, id := range c.ids {
			all[id] = true
		}
		if first, last, close := span(c.ids); close {
			parts = append(parts, s.queries.Part("WakingBetween", s.rawIDs([]string{first, last})...))
		} else {
			ids = append(ids, c.ids...)
		}
	}
	slices.Sort(ids)
	for chunk := range slices.Chunk(slices.Compact(ids), maxBatch) {
		parts = append(parts, s.queries.Bind("WakingAmong", sqldb.Parts{"list": sqldb.List(s.rawIDs(chunk))}))
	}
	out := map[string]waker{}
	for _, part := range parts {
		query := s.queries.Bind("WakingStates", sqldb.Parts{"ids": part}, string(status))
		err := sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			var w waker
			var wakes, updated taskstate.DBTime
			err := rows.Scan(&w.id, &wakes, &updated, &w.fence, &w.owner)
			w.wakes, w.updated = wakes.Time, updated.Time
			if all[w.id] {
				out[w.id] = w
			}
			return err
		}, query.Text, query.Args...)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// closest is how many tasks of a call were made in a millisecond where they stand close together.
const closest = 8

// span returns the first and the last of ids, and whether there are many and few of others lie between: a UUIDv7 begins with the
// milliseconds of its making.
func span(ids []string) (first, last string, close bool) {
	if len(ids) < firstCalls {
		return "", "", false
	}
	first, last = slices.Min(ids), slices.Max(ids)
	made := func(id string) int64 {
		u := uuid.MustParse(id)
		var b [8]byte
		copy(b[2:], u[:6])
		return int64(binary.BigEndian.Uint64(b[:])) //nolint:gosec // 48 bits
	}
	return first, last, int64(len(ids)) >= closest*(made(last)-made(first))
}

// wake selects what wakes before a moment, or by the database's now and a while.
type wake struct {
	status  taskstate.Status
	before  time.Time // zero: by now and in
	in      time.Duration
	limit   int
	exclude []string
}

// woken are tasks that wake, those that slept longest first, the moment before which they do, and the database's clock.
type woken struct {
	tasks      []waker
	until, now time.Time
}

// full reports whether no call from a time on changes which tasks are returned, and sorts them.
func (w *woken) full(limit int, at time.Time) bool {
	w.sort()
	return limit <= 0 || len(w.tasks) >= limit && !at.Before(w.tasks[limit-1].wakes)
}

func (w *woken) sort() {
	slices.SortFunc(w.tasks, func(a, b waker) int {
		return cmp.Or(a.wakes.Compare(b.wakes), a.updated.Compare(b.updated), cmp.Compare(a.id, b.id))
	})
}

// due returns up to limit tasks that wake. Calls none of whose tasks wake by then are moved or ended on the way. A task may wake
// later than its call says: calls are looked at until the next says no earlier time than the last task that is returned. Which of
// those that wake at the same moment are returned is left open.
func (s *Store) due(ctx context.Context, w wake) (out woken, err error) {
	out.until = w.before
	seen := make(map[string]bool, len(w.exclude))
	for _, id := range w.exclude {
		seen[id] = true
	}
	place := call{at: beginning}
	for size, full := firstCalls, false; !full; size = min(2*size, mostCalls) {
		page, err := sqldb.ReadAll(ctx, s, "read which calls wake", s.queries.Get("Waking"), []any{string(w.status), place.at, place.at, place.no, size}, scanCall)
		if err != nil {
			return out, err
		}
		last := len(page) < size
		if len(page) > 0 {
			out.now = page[0].now
		}
		if w.before.IsZero() && len(page) > 0 { // including that moment
			out.until = page[0].now.Add(time.Duration(boundedMicros(w.in)+1) * time.Microsecond)
		}
		if n := slices.IndexFunc(page, func(c call) bool { return !c.at.Before(out.until) }); n >= 0 {
			page, last = page[:n], true
		}
		for group := range groups(page) {
			if full = out.full(w.limit, group[0].at); full {
				break
			}
			place = group[len(group)-1]
			if err := s.look(ctx, w.status, group, seen, &out); err != nil {
				return out, err
			}
		}
		full = full || out.full(w.limit, place.at)
		if last {
			break
		}
	}
	out.sort()
	out.tasks = out.tasks[:min(len(out.tasks), w.limit)]
	return out, nil
}

// groups cuts calls so that none has more tasks than a statement, but for a single one.
func groups(calls []call) func(yield func([]call) bool) {
	return func(yield func([]call) bool) {
		for len(calls) > 0 {
			n, ids := 1, len(calls[0].ids)
			for n < len(calls) && ids+len(calls[n].ids) <= maxBatch {
				ids += len(calls[n].ids)
				n++
			}
			if !yield(calls[:n]) {
				return
			}
			calls = calls[n:]
		}
	}
}

// look adds those tasks of calls that wake in time and were not seen, and tidies the calls that have none.
func (s *Store) look(ctx context.Context, status taskstate.Status, group []call, seen map[string]bool, out *woken) error {
	states, err := s.states(ctx, status, group, out.until)
	for _, w := range states {
		if w.wakes.Before(out.until) && !seen[w.id] {
			out.tasks, seen[w.id] = append(out.tasks, w), true
		}
	}
	return err
}

// states reads those tasks of calls that wake, and tidies the calls that have none which does in time.
func (s *Store) states(ctx context.Context, status taskstate.Status, group []call, until time.Time) (map[string]waker, error) {
	states, err := sqldb.Read(ctx, s, func(ctx context.Context, tx taskstate.Tx) (map[string]waker, error) {
		return s.wakers(ctx, tx, status, group)
	})
	if err != nil {
		return nil, fmt.Errorf("read which tasks wake: %w", err)
	}
	var stale []staleCall
	for _, c := range group {
		var first time.Time
		for _, id := range c.ids {
			if w, wakes := states[id]; wakes && (first.IsZero() || w.wakes.Before(first)) {
				first = w.wakes
			}
		}
		if first.IsZero() || !first.Before(until) {
			stale = append(stale, staleCall{c.no, c.at, first})
		}
	}
	return states, s.tidy(ctx, group[0].epoch, stale)
}

// staleCall is a call that wakes earlier than its tasks, as it was read, and when the first of them does; zero: none.
type staleCall struct {
	no        int64
	at, first time.Time
}

// Held implements taskstate.Store. Every RUNNING task is named by a call of its holder that wakes before its lease ends: who looks
// further ahead than it renews its lease sees each of its claims before anybody else has to. So the process itself tidies its calls.
// What an earlier start of a process of that name has claimed is not its own.
func (s *Store) Held(ctx context.Context, process string, within time.Duration) (held []taskstate.HeldTask, err error) {
	actor := taskstate.Actor{Kind: taskstate.ActorWorker, Name: process}.String()
	row, _ := s.workers.get(process)
	for place, last := (call{at: beginning}), false; !last; {
		page, err := sqldb.ReadAll(ctx, s, "read which calls wake", s.queries.Get("WakingOf"), []any{place.at, place.at, place.no, actor, mostCalls}, scanCall)
		if err != nil {
			return nil, err
		}
		last = len(page) < mostCalls
		if len(page) == 0 {
			break
		}
		until := page[0].now.Add(within)
		if n := slices.IndexFunc(page, func(c call) bool { return !c.at.Before(until) }); n >= 0 {
			page, last = page[:n], true
		}
		for group := range groups(page) {
			place = group[len(group)-1]
			states, err := s.states(ctx, taskstate.StatusRunning, group, until)
			if err != nil {
				return nil, err
			}
			for _, w := range states {
				if w.owner>>callBits == row.no {
					held = append(held, taskstate.HeldTask{TaskID: w.id, Fence: w.fence, Owner: ownerOf(process, w.owner)})
				}
			}
		}
	}
	slices.SortFunc(held, func(a, b taskstate.HeldTask) int { return cmp.Compare(a.TaskID, b.TaskID) })
	return slices.Compact(held), nil
}

// countEnded counts the calls that left tasks in a status in which none wakes, until there are none or somebody else has the first.
func (s *Store) countEnded(ctx context.Context) error {
	for first := int64(0); ; {
		done, err := sqldb.ReadAll(ctx, s, "read calls to count", s.queries.Get("WakingEnded"), []any{mostCalls}, scanEnded)
		if err != nil || len(done) == 0 || done[0].no == first {
			return err
		}
		first = done[0].no
		stale := make([]staleCall, len(done))
		for i, c := range done {
			stale[i] = staleCall{no: c.no, at: c.at}
		}
		if err := s.tidy(ctx, done[0].epoch, stale); err != nil || len(done) < mostCalls {
			return err
		}
	}
}

// scanEnded reads a call as WakingEnded returns it.
func scanEnded(rows *sql.Rows) (c call, err error) {
	var at taskstate.DBTime
	err = rows.Scan(&c.no, &at, &c.epoch)
	c.at = at.Time
	return c, err
}

// tidy moves calls to the time at which their tasks wake, and ends the waking of those that have none. What a plain read of their
// tasks has said is enough in the same epoch; calls that somebody else has locked, or moved since, are left to them.
func (s *Store) tidy(ctx context.Context, epoch int64, stale []staleCall) error {
	if len(stale) == 0 {
		return nil
	}
	byNo, nos := map[int64]staleCall{}, make([]int64, len(stale))
	for i, c := range stale {
		byNo[c.no], nos[i] = c, c.no
	}
	err := s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if m.Epoch != epoch {
			return nil
		}
		lock := s.queries.Bind("WakingLock", sqldb.Parts{"list": sqldb.List(nos)})
		locked, err := sqldb.Collect(ctx, tx, scanLocked, lock.Text, lock.Args...)
		if err != nil {
			return err
		}
		var over []int64
		moved := newCounts()
		for _, c := range locked {
			switch read := byNo[c.no]; {
			case !c.at.Equal(read.at):
			case read.first.IsZero():
				over = append(over, c.no)
				moved.move(c)
			default:
				if _, err := tx.ExecContext(ctx, s.queries.Get("WakingMove"), read.first, c.no); err != nil {
					return err
				}
			}
		}
		if len(over) == 0 {
			return nil
		}
		done := s.queries.Bind("WakingEnd", sqldb.Parts{"list": sqldb.List(over)})
		if _, err := tx.ExecContext(ctx, done.Text, done.Args...); err != nil {
			return err
		}
		return s.count(ctx, tx, moved)
	})
	if err != nil && !errors.Is(err, taskstate.ErrOutcomeUnknown) { // then it is done, or is done by the next look
		return fmt.Errorf("tidy calls that wake: %w", err)
	}
	return nil
}
