// Package call keeps what changes of tasks leave behind: the rows of the log with their call, when a call wakes next, what it
// counts when that ends, and what calls say of the pace of work.
package call

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
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// A task that wakes is found by its call: the call's row has the time at which the first of its tasks wakes. So no index of the
// state is written at every change of a task. Three rules keep it true:
//   - Whoever gives a task a status or a time to wake writes a call with a time that is not later, in the same transaction. A
//     heartbeat, which only moves the task's time back, does not.
//   - The state says what is true. A call that wakes too early costs a look; none may wake too late.
//   - A call's time is moved or ended by what a plain read of its tasks says: whatever changed one since has a call of its own.
//
// A call is counted when its waking ends (counts.go). So every call that changes a status wakes at least once.

// Store is a database with the statements of package taskstore.
type Store struct {
	*sqldb.Database
	Queries sqldb.Queries
}

// Call is a row of ingest_task_call with what its tasks need.
type Call struct {
	No       int64
	At       time.Time // when it wakes, or was made
	IDs      []string
	Now      time.Time // the database's clock when it was read
	epoch    int64     // and its epoch
	from, to taskstate.Status
	tasks    int64
	owners   string // as its row says it
}

// Waker is a state that wakes.
type Waker struct {
	ID             string
	Wakes, Updated time.Time
	Fence, Owner   int64
}

// How many calls are read at once.
const (
	FirstPage = 8   // of the first page; each is twice as long as the one before
	MostPage  = 256 // of a page
)

// Beginning is before every time, and End after every one but for that which stands for never.
var (
	Beginning = time.Unix(0, 0).UTC()
	End       = time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC)
	neverAt   = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// Scan reads a call as Waking, WakingOf, CallsUp and CallsDown return it.
func Scan(rows *sql.Rows) (c Call, err error) {
	var at, now taskstate.DBTime
	var raw sql.RawBytes
	if err := rows.Scan(&c.No, &at, &raw, &now, &c.epoch); err != nil {
		return c, err
	}
	c.At, c.Now = at.Time, now.Time
	c.IDs = make([]string, 0, len(raw)/len(uuid.UUID{}))
	if err := eachID(raw, func(id uuid.UUID) { c.IDs = append(c.IDs, id.String()) }); err != nil {
		return c, fmt.Errorf("call %d: %w", c.No, err)
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
func scanLocked(rows *sql.Rows) (c Call, err error) {
	var at taskstate.DBTime
	err = rows.Scan(&c.No, &at, &c.from, &c.to, &c.tasks, &c.owners)
	c.At = at.Time
	return c, err
}

// ended reports whether no task of a status wakes.
func ended(status taskstate.Status) bool {
	return status == taskstate.StatusSucceeded || status == taskstate.StatusSuspended || status == taskstate.StatusCancelled
}

// wakers reads those tasks of calls that wake in a status, whenever that is. Calls whose tasks stand close together are read as they
// stand: a list of many ids costs the server more than the rows of others between them.
func (s Store) wakers(ctx context.Context, tx taskstate.Tx, status taskstate.Status, calls []Call) (map[string]Waker, error) {
	if ended(status) {
		return nil, nil
	}
	var parts []sqldb.Part
	var ids []string
	all := map[string]bool{}
	for _, c := range calls {
		for _, id := range c.IDs {
			all[id] = true
		}
		if first, last, close := span(c.IDs); close {
			parts = append(parts, s.Queries.Part("WakingBetween", statement.RawIDs(s.Dialect(), []string{first, last})...))
		} else {
			ids = append(ids, c.IDs...)
		}
	}
	slices.Sort(ids)
	for chunk := range slices.Chunk(slices.Compact(ids), statement.MaxRows) {
		parts = append(parts, s.Queries.Bind("WakingAmong", sqldb.Parts{"list": sqldb.List(statement.RawIDs(s.Dialect(), chunk))}))
	}
	out := map[string]Waker{}
	for _, part := range parts {
		query := s.Queries.Bind("WakingStates", sqldb.Parts{"ids": part}, string(status))
		err := sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			var w Waker
			var wakes, updated taskstate.DBTime
			err := rows.Scan(&w.ID, &wakes, &updated, &w.Fence, &w.Owner)
			w.Wakes, w.Updated = wakes.Time, updated.Time
			if all[w.ID] {
				out[w.ID] = w
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
	if len(ids) < FirstPage {
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

// Wake selects what wakes before a moment, or by the database's now and a while.
type Wake struct {
	Status  taskstate.Status
	Before  time.Time     // zero: by now and In
	In      time.Duration // at most a hundred years
	Limit   int
	Exclude []string
}

// Woken are tasks that wake, those that slept longest first, the moment before which they do, and the database's clock.
type Woken struct {
	Tasks      []Waker
	Until, Now time.Time
}

// full reports whether no call from a time on changes which tasks are returned, and sorts them.
func (w *Woken) full(limit int, at time.Time) bool {
	w.sort()
	return limit <= 0 || len(w.Tasks) >= limit && !at.Before(w.Tasks[limit-1].Wakes)
}

func (w *Woken) sort() {
	slices.SortFunc(w.Tasks, func(a, b Waker) int {
		return cmp.Or(a.Wakes.Compare(b.Wakes), a.Updated.Compare(b.Updated), cmp.Compare(a.ID, b.ID))
	})
}

// Due returns up to limit tasks that wake. Calls none of whose tasks wake by then are moved or ended on the way. A task may wake
// later than its call says: calls are looked at until the next says no earlier time than the last task that is returned. Which of
// those that wake at the same moment are returned is left open.
func (s Store) Due(ctx context.Context, w Wake) (out Woken, err error) {
	out.Until = w.Before
	seen := make(map[string]bool, len(w.Exclude))
	for _, id := range w.Exclude {
		seen[id] = true
	}
	place := Call{At: Beginning}
	for size, full := FirstPage, false; !full; size = min(2*size, MostPage) {
		page, err := sqldb.ReadAll(ctx, s, "read which calls wake", s.Queries.Get("Waking"), []any{string(w.Status), place.At, place.At, place.No, size}, Scan)
		if err != nil {
			return out, err
		}
		last := len(page) < size
		if len(page) > 0 {
			out.Now = page[0].Now
		}
		if w.Before.IsZero() && len(page) > 0 { // including that moment
			out.Until = page[0].Now.Add(time.Duration(w.In.Microseconds()+1) * time.Microsecond)
		}
		if n := slices.IndexFunc(page, func(c Call) bool { return !c.At.Before(out.Until) }); n >= 0 {
			page, last = page[:n], true
		}
		for group := range Groups(page) {
			if full = out.full(w.Limit, group[0].At); full {
				break
			}
			place = group[len(group)-1]
			if err := s.look(ctx, w.Status, group, seen, &out); err != nil {
				return out, err
			}
		}
		full = full || out.full(w.Limit, place.At)
		if last {
			break
		}
	}
	out.sort()
	out.Tasks = out.Tasks[:min(len(out.Tasks), w.Limit)]
	return out, nil
}

// Groups cuts calls so that none has more tasks than a statement, but for a single one.
func Groups(calls []Call) func(yield func([]Call) bool) {
	return func(yield func([]Call) bool) {
		for len(calls) > 0 {
			n := Together(calls)
			if !yield(calls[:n]) {
				return
			}
			calls = calls[n:]
		}
	}
}

// Together is how many of the first calls have no more tasks than a statement; at least one.
func Together(calls []Call) int {
	n, ids := 1, len(calls[0].IDs)
	for n < len(calls) && ids+len(calls[n].IDs) <= statement.MaxRows {
		ids += len(calls[n].IDs)
		n++
	}
	return n
}

// look adds those tasks of calls that wake in time and were not seen, and tidies the calls that have none.
func (s Store) look(ctx context.Context, status taskstate.Status, group []Call, seen map[string]bool, out *Woken) error {
	states, err := s.States(ctx, status, group, out.Until)
	for _, w := range states {
		if w.Wakes.Before(out.Until) && !seen[w.ID] {
			out.Tasks, seen[w.ID] = append(out.Tasks, w), true
		}
	}
	return err
}

// States reads those tasks of calls that wake, and tidies the calls that have none which does in time.
func (s Store) States(ctx context.Context, status taskstate.Status, group []Call, until time.Time) (map[string]Waker, error) {
	states, err := sqldb.Read(ctx, s, func(ctx context.Context, tx taskstate.Tx) (map[string]Waker, error) {
		return s.wakers(ctx, tx, status, group)
	})
	if err != nil {
		return nil, fmt.Errorf("read which tasks wake: %w", err)
	}
	var stale []staleCall
	for _, c := range group {
		var first time.Time
		for _, id := range c.IDs {
			if w, wakes := states[id]; wakes && (first.IsZero() || w.Wakes.Before(first)) {
				first = w.Wakes
			}
		}
		if first.IsZero() || !first.Before(until) {
			stale = append(stale, staleCall{c.No, c.At, first})
		}
	}
	return states, s.tidy(ctx, group[0].epoch, stale)
}

// staleCall is a call that wakes earlier than its tasks, as it was read, and when the first of them does; zero: none.
type staleCall struct {
	no        int64
	at, first time.Time
}

// CountEnded counts the calls that left tasks in a status in which none wakes, until there are none or somebody else has the first.
func (s Store) CountEnded(ctx context.Context) error {
	for first := int64(0); ; {
		done, err := sqldb.ReadAll(ctx, s, "read calls to count", s.Queries.Get("WakingEnded"), []any{MostPage}, scanEnded)
		if err != nil || len(done) == 0 || done[0].No == first {
			return err
		}
		first = done[0].No
		stale := make([]staleCall, len(done))
		for i, c := range done {
			stale[i] = staleCall{no: c.No, at: c.At}
		}
		if err := s.tidy(ctx, done[0].epoch, stale); err != nil || len(done) < MostPage {
			return err
		}
	}
}

// scanEnded reads a call as WakingEnded returns it.
func scanEnded(rows *sql.Rows) (c Call, err error) {
	var at taskstate.DBTime
	err = rows.Scan(&c.No, &at, &c.epoch)
	c.At = at.Time
	return c, err
}

// tidy moves calls to the time at which their tasks wake, and ends the waking of those that have none. What a plain read of their
// tasks has said is enough in the same epoch; calls that somebody else has locked, or moved since, are left to them.
func (s Store) tidy(ctx context.Context, epoch int64, stale []staleCall) error {
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
		lock := s.Queries.Bind("WakingLock", sqldb.Parts{"list": sqldb.List(nos)})
		locked, err := sqldb.Collect(ctx, tx, scanLocked, lock.Text, lock.Args...)
		if err != nil {
			return err
		}
		var over []int64
		moved := newCounts()
		for _, c := range locked {
			switch read := byNo[c.No]; {
			case !c.At.Equal(read.at):
			case read.first.IsZero():
				over = append(over, c.No)
				moved.move(c)
			default:
				if _, err := tx.ExecContext(ctx, s.Queries.Get("WakingMove"), read.first, c.No); err != nil {
					return err
				}
			}
		}
		if len(over) == 0 {
			return nil
		}
		done := s.Queries.Bind("WakingEnd", sqldb.Parts{"list": sqldb.List(over)})
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
