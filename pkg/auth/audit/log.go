package audit

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// flushEvery is the pause between two writes of what was tried.
	flushEvery = 10 * time.Second
	// maxTried bounds the kinds of attempts between two writes; what comes on top is counted together as others.
	maxTried = 256
	// flushTimeout bounds one write.
	flushTimeout = 5 * time.Second
	// others stands in for the address of attempts beyond maxTried.
	others = "others"
)

// Log writes and reads the audit log. It is safe for concurrent use; Run must run for what was tried to be written.
type Log struct {
	db  sqldb.DB
	q   sqldb.Queries
	log *slog.Logger

	mu    sync.Mutex
	tried map[tryKey]*Event
}

// tryKey is what makes attempts of one kind.
type tryKey struct {
	action                   Action
	actor, keyID, ip, target string
}

// New makes a Log over a database.
func New(db sqldb.DB, log *slog.Logger) *Log {
	return &Log{db: db, q: sqldb.MustLoad(queries, "queries", db.Dialect()), log: log, tried: map[tryKey]*Event{}}
}

// Tried counts an attempt that changed nothing; those of one kind (action, actor, key, address, target) become one row
// with the first one's request id. It never waits and never fails.
func (l *Log) Tried(e Event) {
	e.Times = 1
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tried[kindOf(e)] == nil && len(l.tried) >= maxTried {
		e = Event{Action: e.Action, Source: Source{IP: others}, Detail: "more callers than are told apart", Times: 1}
	}
	l.add(e)
}

// kindOf is what attempts have in common that are counted together.
func kindOf(e Event) tryKey {
	return tryKey{e.Action, e.Source.Actor, e.Source.KeyID, e.Source.IP, e.Target}
}

// add counts an event with what is there of its kind.
func (l *Log) add(e Event) {
	k := kindOf(e)
	if there := l.tried[k]; there != nil {
		there.Times += e.Times
		return
	}
	l.tried[k] = &e
}

// giveBack keeps what could not be written.
func (l *Log) giveBack(events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.add(e)
	}
}

// Run writes what was tried from time to time until ctx ends, and once more then.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.Flush(ctx)
		case <-ctx.Done():
			l.Flush(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// Flush writes what was tried since the last time. While the database is away the counts are kept, within their bound.
func (l *Log) Flush(ctx context.Context) {
	events := l.take()
	if len(events) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err := l.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		for _, e := range events {
			if err := l.insert(ctx, tx, m, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.giveBack(events)
		l.log.WarnContext(ctx, "audit: attempts not written yet", slog.Int("kinds", len(events)), slog.Any("error", err))
	}
}

// take empties the counts, in a fixed order.
func (l *Log) take() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Event, 0, len(l.tried))
	for _, e := range l.tried {
		out = append(out, *e)
	}
	clear(l.tried)
	slices.SortFunc(out, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Source.IP, b.Source.IP),
			cmp.Compare(a.Source.Actor, b.Source.Actor), cmp.Compare(a.Target, b.Target))
	})
	return out
}

// Write writes an event in a transaction of its own, for a step outside the database: write it before the step.
func (l *Log) Write(ctx context.Context, e Event) error { return l.db.InTx(ctx, l.Note(e)) }
