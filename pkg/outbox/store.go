package outbox

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// Store is the outbox in a SQL database. It is safe for concurrent use.
type Store struct {
	db sqldb.DB
	q  sqldb.Queries
}

// NewStore makes a store over an open database.
func NewStore(db sqldb.DB) *Store {
	return &Store{db: db, q: sqldb.MustLoad(queryFiles, "queries", db.Dialect())}
}

// lists are the lists of a statement.
type lists struct {
	seqs   []int64  // events
	rows   []int64  // events with their leases in tokens
	tokens []string // the same token may stand for many rows
}

// mark adds a mark.
func (l *lists) mark(m Mark) {
	l.rows = append(l.rows, m.Seq)
	if !slices.Contains(l.tokens, m.Token) {
		l.tokens = append(l.tokens, m.Token)
	}
}

// bind puts lists and arguments into a statement. An empty list finds nothing: no event has the number −1.
func (s *Store) bind(name string, l lists, args ...any) sqldb.Part {
	return s.q.Bind(name, sqldb.Parts{"seqs": sqldb.List(l.seqs, -1), "rows": sqldb.List(l.rows, -1), "tokens": sqldb.List(l.tokens, noToken)}, args...)
}

// Leased is an event that this relay may send until its lease ends.
type Leased struct {
	Event
	Age time.Duration // since CreatedAt, by the database's clock, when it was leased
}

// Mark is what became of a leased event: SENT, or by a failed attempt RETRYING or DEAD.
type Mark struct {
	Seq     int64
	Token   string // of the lease: another's event is left as it is
	To      Status
	Cause   Cause
	Attempt int           // failed attempts, this one counted
	Wait    time.Duration // RETRYING: until the next one
	Error   string        // of this attempt
}

// Turn is one transaction of a relay: it writes down what became of events and leases the next ones.
type Turn struct {
	Marks  []Mark
	Status Status // of the events to lease: NEW or RETRYING
	Limit  int    // most events to lease; 0: none
	Token  string // of the new leases, one for each turn: 24 characters
	Lease  time.Duration
}

// noToken is no lease's token: it keeps a list from being empty.
const noToken = "-"

// Turn runs t and returns the leased events, the longest waiting first. No lock outlasts it.
func (s *Store) Turn(ctx context.Context, t Turn) ([]Leased, error) {
	var leased []Leased
	run := func(ctx context.Context, tx taskstate.Tx) (err error) {
		if leased, err = s.due(ctx, tx, t); err != nil {
			return err
		}
		crash.Point("relay.after_select")
		if err := s.markFailed(ctx, tx, t.Marks); err != nil {
			return err
		}
		return s.turn(ctx, tx, t, leased)
	}
	resolved := func(ctx context.Context, tx taskstate.Tx) (bool, error) { return s.holds(ctx, tx, leased, t.Token) }
	if err := s.db.Transact(ctx, run, resolved); err != nil {
		return nil, fmt.Errorf("outbox: turn: %w", err)
	}
	return leased, nil
}

// due locks the next events, without those that t itself marks: their lease ended while they were sent.
func (s *Store) due(ctx context.Context, tx taskstate.Tx, t Turn) ([]Leased, error) {
	if t.Limit == 0 {
		return nil, nil
	}
	marked := make(map[int64]bool, len(t.Marks))
	for _, m := range t.Marks {
		marked[m.Seq] = true
	}
	out, err := sqldb.Collect(ctx, tx, func(rows *sql.Rows) (Leased, error) {
		l := Leased{Event: Event{Status: t.Status}}
		var created, now taskstate.DBTime
		err := rows.Scan(&l.Seq, &l.ID, &l.Topic, &l.Key, &l.Payload, &l.TraceParent, &l.Cause, &l.AttemptCount, &created, &now)
		l.CreatedAt, l.Age = created.Time, now.Sub(created.Time)
		return l, err
	}, s.q.Get("Due"), string(t.Status), t.Limit)
	return slices.DeleteFunc(out, func(l Leased) bool { return marked[l.Seq] }), err
}

// turn marks what was sent and leases, in one statement.
func (s *Store) turn(ctx context.Context, tx taskstate.Tx, t Turn, leased []Leased) error {
	var l lists
	for _, m := range t.Marks {
		if m.To == StatusSent {
			l.mark(m)
		}
	}
	for _, e := range leased {
		l.seqs = append(l.seqs, e.Seq)
	}
	if len(l.seqs)+len(l.rows) == 0 {
		return nil
	}
	_, err := s.exec(ctx, tx, "Turn", l, t.Lease.Microseconds(), t.Token)
	return err
}

// markFailed marks failed attempts: in an outage they are alike, and so few statements.
func (s *Store) markFailed(ctx context.Context, tx taskstate.Tx, marks []Mark) error {
	alike := map[Mark]*lists{} // by what they share: all but the event and its lease
	var order []Mark
	for _, m := range marks {
		if m.To == StatusSent {
			continue
		}
		f := m
		f.Seq, f.Token = 0, ""
		if alike[f] == nil {
			alike[f] = &lists{}
			order = append(order, f)
		}
		alike[f].mark(m)
	}
	for _, f := range order {
		name, args := "MarkRetrying", []any{string(f.Cause), f.Attempt, f.Error, f.Wait.Microseconds(), f.Wait.Microseconds()}
		if f.To == StatusDead {
			name, args = "MarkDead", []any{string(f.Cause), f.Attempt, f.Error, string(f.Cause)}
		}
		if _, err := s.exec(ctx, tx, name, *alike[f], args...); err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether a turn without an answer leased what it read. One that leased nothing is run again: its marks find
// the rows as they should be, or not theirs any more.
func (s *Store) holds(ctx context.Context, tx taskstate.Tx, leased []Leased, token string) (bool, error) {
	if len(leased) == 0 {
		return false, nil
	}
	var l lists
	for _, e := range leased {
		l.seqs = append(l.seqs, e.Seq)
	}
	query := s.bind("Leased", l, token)
	held, err := sqldb.Collect(ctx, tx, sqldb.Column[int64], query.Text, query.Args...)
	return len(held) > 0, err
}

// NextWake returns how long until the first event of a status wakes: 0 when it is due, limit when there is none before.
func (s *Store) NextWake(ctx context.Context, status Status, limit time.Duration) (time.Duration, error) {
	wait := limit
	err := s.db.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		var wake, now taskstate.DBTime
		err := db.QueryRowContext(ctx, s.q.Get("NextWake"), string(status)).Scan(&wake, &now)
		switch {
		case errors.Is(err, sql.ErrNoRows) || (err == nil && wake.IsZero()):
			wait = limit
			return nil
		case err != nil:
			return err
		}
		wait = min(max(0, wake.Sub(now.Time)), limit)
		return nil
	})
	return wait, wrap("next wake", err)
}

// wrap says what was being done.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: %s: %w", what, err)
}

// pageRows is how many events one transaction revives, requeues or removes.
const pageRows = 500

// Revivable reports whether an event is DEAD for want of a broker.
func (s *Store) Revivable(ctx context.Context) (bool, error) {
	wait, err := s.NextWake(ctx, StatusDead, 1)
	return err == nil && wait == 0, err
}

// Revive makes at most limit events NEW again that are DEAD for want of a broker, in the order of their deaths, and returns
// how many. Several relays may do it at once: each gets others.
func (s *Store) Revive(ctx context.Context, limit int) (int, error) {
	n := 0
	err := s.db.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		n = 0
		seqs, err := sqldb.Collect(ctx, tx, sqldb.Column[int64], s.q.Get("Revivable"), limit)
		if err != nil || len(seqs) == 0 {
			return err
		}
		n, err = s.exec(ctx, tx, "Revive", lists{seqs: seqs})
		return err
	}, again)
	return n, wrap("revive", err)
}

// again settles work that may be done twice: it is run again.
func again(context.Context, taskstate.Tx) (bool, error) { return false, nil }

// exec runs a statement over lists and returns how many rows it matched.
func (s *Store) exec(ctx context.Context, tx taskstate.Tx, name string, l lists, args ...any) (int, error) {
	return exec(ctx, tx, s.bind(name, l, args...))
}

// exec runs a statement and returns how many rows it matched.
func exec(ctx context.Context, tx taskstate.Tx, query sqldb.Part) (int, error) {
	res, err := tx.ExecContext(ctx, query.Text, query.Args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}
