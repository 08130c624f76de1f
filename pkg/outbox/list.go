package outbox

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

var (
	// ErrNotFound says that there is no such event.
	ErrNotFound = errors.New("no such event")
	// ErrNotDead says that an event need not be requeued: it is sent, or will be.
	ErrNotDead = errors.New("the event is not DEAD")
)

const (
	// countedUpTo bounds the counting of one status.
	countedUpTo = 1_000_000
	// oldestAmong is how many of the longest waiting events are asked for their age; a few of another order may stand between.
	oldestAmong = 1000
)

// Stats are the figures of an outbox.
type Stats struct {
	Counts map[Status]int64 // at most a million each
	Oldest time.Duration    // age of the oldest event that is NEW or RETRYING; 0: none
}

// Backlog is how many events wait to be sent.
func (s Stats) Backlog() int64 { return s.Counts[StatusNew] + s.Counts[StatusRetrying] }

// Stats counts the events of these states; none given: all.
func (s *Store) Stats(ctx context.Context, states ...Status) (out Stats, err error) {
	if len(states) == 0 {
		states = []Status{StatusNew, StatusRetrying, StatusSent, StatusDead}
	}
	err = s.db.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		out = Stats{Counts: map[Status]int64{}}
		for _, status := range states {
			var n int64
			if err := db.QueryRowContext(ctx, s.q.Get("CountUpTo"), string(status), countedUpTo).Scan(&n); err != nil {
				return err
			}
			out.Counts[status] = n
		}
		for _, status := range []Status{StatusNew, StatusRetrying} {
			var oldest, now taskstate.DBTime
			if err := db.QueryRowContext(ctx, s.q.Get("OldestOf"), string(status), oldestAmong).Scan(&oldest, &now); err != nil {
				return err
			}
			if !oldest.IsZero() {
				out.Oldest = max(out.Oldest, now.Sub(oldest.Time))
			}
		}
		return nil
	})
	return out, wrap("count events", err)
}

// Query selects events of a list, the newest first: of one state, or of one task.
type Query struct {
	State Status // with TaskID it may be empty
	Task  string
	Cause Cause  // empty: any
	Topic string // empty: any
	After *Cursor
	Limit int
}

// Cursor is the last row of the page before.
type Cursor struct {
	WakeAt time.Time // of a list by state; zero: never
	Seq    int64
}

// Item is an event of a list, without its payload.
type Item struct {
	Event
	WakeAt time.Time // when it is looked at again, or its lease ends; zero: never
}

// Cursor is where the next page begins.
func (i Item) Cursor() Cursor { return Cursor{WakeAt: i.WakeAt, Seq: i.Seq} }

// List reads a page of events.
func (s *Store) List(ctx context.Context, q Query) (out []Item, err error) {
	if !sqldb.ASCII(q.Task) || !sqldb.ASCII(q.Topic) {
		return nil, nil
	}
	query, args := s.listQuery("ListColumns", q)
	out, err = read(ctx, s.db, scanItem, query, args...)
	return out, wrap("list events", err)
}

// reader reads rows without locks.
type reader interface {
	Read(ctx context.Context, f taskstate.ReadFunc) error
}

// read returns the rows of a query.
func read[T any](ctx context.Context, db reader, scan func(*sql.Rows) (T, error), query string, args ...any) (out []T, err error) {
	err = db.Read(ctx, func(ctx context.Context, tx taskstate.Tx) (err error) {
		out, err = sqldb.Collect(ctx, tx, scan, query, args...)
		return err
	})
	return out, err
}

// listQuery puts the parts of a list's statement together.
func (s *Store) listQuery(columns string, q Query) (string, []any) {
	var text strings.Builder
	var args []any
	add := func(when bool, name string, values ...any) {
		if when {
			text.WriteString(s.q.Get(name))
			text.WriteByte('\n')
			args = append(args, values...)
		}
	}
	byTask := q.Task != ""
	add(true, columns)
	add(byTask, "ListByTask", q.Task)
	add(byTask && q.State != "", "ListStatus", string(q.State))
	add(!byTask, "ListByState", string(q.State))
	add(q.Cause != "", "ListCause", string(q.Cause))
	add(!byTask && q.State == StatusDead && q.Cause == CauseRefused, "ListRefused")
	add(!byTask && q.State == StatusDead && q.Cause == CauseUnavailable, "ListRevivable")
	add(q.Topic != "", "ListTopic", q.Topic)
	if q.After != nil {
		at := q.After.WakeAt
		if at.IsZero() {
			at = never
		}
		add(byTask, "ListBeforeSeq", q.After.Seq)
		add(!byTask, "ListBefore", at, at, q.After.Seq)
	}
	add(byTask, "ListOrderSeq", q.Limit)
	add(!byTask, "ListOrder", q.Limit)
	return text.String(), args
}

// scanItem reads a row of ListColumns.
func scanItem(rows *sql.Rows) (Item, error) {
	var i Item
	var last sql.NullString
	var next, created, sent, wake taskstate.DBTime
	err := rows.Scan(&i.Seq, &i.ID, &i.Topic, &i.Key, &i.TraceParent, &i.Status, &i.Cause, &i.AttemptCount, &next, &last,
		&created, &sent, &wake)
	i.NextRetryAt, i.LastError, i.CreatedAt, i.SentAt, i.WakeAt = next.Time, last.String, created.Time, sent.Time, wake.Time
	return i, err
}

// Get reads an event with its payload. ErrNotFound.
func (s *Store) Get(ctx context.Context, id string) (out Item, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		found, err := sqldb.Collect(ctx, db, scanItem, s.q.Get("ListColumns")+"\n"+s.q.Get("ByID"), id)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return ErrNotFound
		}
		out = found[0]
		return db.QueryRowContext(ctx, s.q.Get("PayloadOf"), out.Seq).Scan(&out.Payload)
	})
	if errors.Is(err, sql.ErrNoRows) { // removed between the two
		err = ErrNotFound
	}
	return out, wrap("read event "+id, err)
}

// Requeue makes a DEAD event NEW again, whatever it died of. ErrNotFound, ErrNotDead.
// note is written in the same transaction; nil: nothing is.
func (s *Store) Requeue(ctx context.Context, id string, note taskstate.TxFunc) error {
	item, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	n, err := s.requeue(ctx, []int64{item.Seq}, note)
	if err == nil && n == 0 {
		return wrap("requeue event "+id, ErrNotDead)
	}
	return err
}

// RequeueAll makes at most limit DEAD events that q selects NEW again and returns how many; fewer than limit: no more are
// left. q.State is DEAD, q.After and q.Limit are not looked at. note is written in each of its transactions; nil: nothing is.
func (s *Store) RequeueAll(ctx context.Context, q Query, limit int, note taskstate.TxFunc) (int, error) {
	done := 0
	q.State, q.After = StatusDead, nil
	for done < limit {
		q.Limit = min(pageRows, limit-done)
		page, err := s.List(ctx, q)
		if err != nil || len(page) == 0 {
			return done, err
		}
		seqs := make([]int64, 0, len(page))
		for _, i := range page {
			seqs = append(seqs, i.Seq)
		}
		n, err := s.requeue(ctx, seqs, note)
		done += n
		if err != nil || len(page) < q.Limit {
			return done, err
		}
		last := page[len(page)-1].Cursor()
		q.After = &last
	}
	return done, nil
}

// requeue revives events by their seq, in that order: two callers do not wait for each other in a circle.
func (s *Store) requeue(ctx context.Context, seqs []int64, note taskstate.TxFunc) (n int, err error) {
	slices.Sort(seqs)
	err = s.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		n, err = s.exec(ctx, tx, "Revive", lists{seqs: seqs})
		if err != nil || n == 0 || note == nil {
			return err
		}
		return note(ctx, tx, m)
	})
	return n, wrap("requeue", err)
}
