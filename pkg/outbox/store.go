package outbox

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	return &Store{db: db, q: loadQueries(sqldb.Dialect(db.Dialect()))}
}

// loadQueries reads the statements of a dialect and fills in the indexes that MySQL is told of.
func loadQueries(d sqldb.Dialect) sqldb.Queries {
	q := sqldb.MustLoad(queryFiles, "queries", string(d))
	primary, sweep, key := "", "", ""
	if d == sqldb.MySQL {
		primary, sweep, key = "FORCE INDEX (PRIMARY)", "FORCE INDEX (outbox_event_sweep)", "FORCE INDEX (outbox_event_key)"
	}
	shared := strings.NewReplacer("@primary", primary, "@sweep", sweep, "@bykey", key)
	for name, text := range q {
		q[name] = shared.Replace(text)
	}
	return q
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
	out, err := collect(ctx, tx, func(rows *sql.Rows) (Leased, error) {
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
	var p params
	for _, m := range t.Marks {
		if m.To == StatusSent {
			p.mark(m)
		}
	}
	for _, l := range leased {
		p.seqs = append(p.seqs, l.Seq)
	}
	if len(p.seqs)+len(p.rows) == 0 {
		return nil
	}
	p.after = t.Lease
	query, args := s.bind("Turn", p, t.Token)
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

// failure is what the marks of one statement share.
type failure struct {
	to      Status
	cause   Cause
	attempt int
	wait    time.Duration
	text    string
}

// markFailed marks failed attempts: in an outage they are alike, and so few statements.
func (s *Store) markFailed(ctx context.Context, tx taskstate.Tx, marks []Mark) error {
	alike := map[failure]*params{}
	var order []failure
	for _, m := range marks {
		if m.To == StatusSent {
			continue
		}
		f := failure{m.To, m.Cause, m.Attempt, m.Wait, m.Error}
		if alike[f] == nil {
			alike[f] = &params{after: m.Wait}
			order = append(order, f)
		}
		alike[f].mark(m)
	}
	for _, f := range order {
		name, args := "MarkRetrying", []any{string(f.cause), f.attempt, f.text}
		if f.to == StatusDead {
			name, args = "MarkDead", append(args, string(f.cause))
		}
		query, args := s.bind(name, *alike[f], args...)
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
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
	p := params{}
	for _, l := range leased {
		p.seqs = append(p.seqs, l.Seq)
	}
	query, args := s.bind("Leased", p, token)
	held, err := collect(ctx, tx, number, query, args...)
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

// collect reads all rows of a query.
func collect[T any](ctx context.Context, tx taskstate.Tx, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

// number scans a row's only column.
func number(rows *sql.Rows) (n int64, err error) { return n, rows.Scan(&n) }
