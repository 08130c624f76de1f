package rival

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskstore"
)

const (
	// brokerAnswer is how long the stand-in broker of the relays takes for an answer, whatever it was sent.
	brokerAnswer = 2 * time.Millisecond
	// largeBatch is what both relays are given where not their defaults are measured.
	largeBatch = 500
	// relayed is the topic of the relayed events.
	relayed = "events"
)

// outboxRelay is the product's relay. Its "task" is an event of the outbox, handled once the broker has answered. No bell
// wakes it: it finds events by looking, as a relay does that is a process of its own.
type outboxRelay struct {
	cfg   Config
	batch int // 0: the default

	store   *taskstore.Store
	writers *sql.DB
}

// Prepare implements System.
func (s *outboxRelay) Prepare(ctx context.Context) error {
	s.Close()
	dsn, err := freshMySQL(ctx, s.cfg.MySQL, fmt.Sprintf("peers_relay_%d", s.batch))
	if err != nil {
		return err
	}
	if s.store, err = taskstore.Open(ctx, taskstore.Config{MySQLDSN: dsn}); err != nil {
		return err
	}
	if _, err := s.store.Migrate(ctx); err != nil {
		return err
	}
	s.writers, err = openMySQL(ctx, dsn, s.cfg.Workers)
	return err
}

// Submit implements System.
func (s *outboxRelay) Submit(ctx context.Context, n int) error { return oneByOne(ctx, s, s.cfg, n) }

// Send implements System.
func (s *outboxRelay) Send(ctx context.Context, payload []byte, committed func()) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	err = inTransaction(ctx, s.writers, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO outbox_event (id, topic, message_key, payload, wake_at, created_at)
VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`, id.String(), relayed, id.String(), payload)
		return err
	})
	committed()
	return err
}

// Work implements System.
func (s *outboxRelay) Work(ctx context.Context, handle func(payload []byte)) (func() error, error) {
	cfg := outbox.NewDefaultConfig()
	if s.batch > 0 {
		cfg.BatchSize = s.batch
	}
	relay, err := outbox.NewRelay(cfg, outbox.Deps{
		Store: outbox.NewStore(s.store), Sender: answering{handle}, Log: slog.New(slog.DiscardHandler), Clock: time.Now,
	})
	if err != nil {
		return nil, err
	}
	return beside(ctx, relay.Run), nil
}

// Drained implements System: an event is NEW until its mark is committed.
func (s *outboxRelay) Drained(ctx context.Context, _ int) (bool, error) {
	stats, err := outbox.NewStore(s.store).Stats(ctx, outbox.StatusNew, outbox.StatusRetrying)
	return err == nil && stats.Backlog() == 0, err
}

// Check implements Checker: every event is SENT.
func (s *outboxRelay) Check(ctx context.Context, n int) error {
	stats, err := outbox.NewStore(s.store).Stats(ctx)
	if got := stats.Counts[outbox.StatusSent]; err == nil && got != int64(n) {
		err = fmt.Errorf("%d of %d events are SENT: %v", got, n, stats.Counts)
	}
	return err
}

// Close implements System.
func (s *outboxRelay) Close() {
	if s.store != nil {
		_ = s.store.Close() // nothing is left to lose
	}
	if s.writers != nil {
		_ = s.writers.Close() // only connections
	}
	s.store, s.writers = nil, nil
}

// answering is the stand-in broker: it takes everything and returns after a fixed time.
type answering struct{ handle func([]byte) }

// answer waits for the answer to these payloads.
func (b answering) answer(ctx context.Context, payloads ...[]byte) error {
	if !pause.For(ctx, brokerAnswer) {
		return context.Cause(ctx)
	}
	for _, p := range payloads {
		b.handle(p)
	}
	return nil
}

// Send implements outbox.Sender.
func (b answering) Send(ctx context.Context, events []outbox.Event) []outbox.Result {
	payloads, out := make([][]byte, len(events)), make([]outbox.Result, len(events))
	for i, e := range events {
		payloads[i] = e.Payload
	}
	err := b.answer(ctx, payloads...)
	for i, e := range events {
		out[i] = outbox.Result{Seq: e.Seq, Err: err}
	}
	return out
}

// Probe implements outbox.Sender.
func (answering) Probe(context.Context) error { return nil }

// oneByOne submits n tasks as an outbox gets its events: each in a transaction of its own, many at a time.
func oneByOne(ctx context.Context, s System, cfg Config, n int) error {
	return each(ctx, n, cfg.Workers, func(ctx context.Context, i int) error { return s.Send(ctx, Payload(i+1), func() {}) })
}

// inTransaction commits what f does.
func inTransaction(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
