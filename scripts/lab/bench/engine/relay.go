package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	relayEvents  = 20_000
	relayRounds  = 3
	relayBatch   = 500
	relaySmall   = 20                   // INGEST_KAFKA_PUBLISH_BATCH_SIZE's default
	brokerAnswer = 2 * time.Millisecond // of the stand-in broker
	slowRelay    = 20                   // events a second of a relay that sends a batch of 20 each second
	delayRate    = 300
	delaySeconds = 10
	relayLimit   = time.Minute
	relayPayload = 600 // bytes, about those of an envelope
)

// standIn is a broker that takes every event and returns after a fixed time.
type standIn struct{ took atomic.Int64 }

// Send implements outbox.Sender.
func (s *standIn) Send(_ context.Context, events []outbox.Event) []outbox.Result {
	<-time.After(brokerAnswer)
	out := make([]outbox.Result, len(events))
	for i, e := range events {
		out[i].Seq = e.Seq
	}
	s.took.Add(int64(len(events)))
	return out
}

// Probe implements outbox.Sender.
func (*standIn) Probe(context.Context) error { return nil }

// wait waits until it took n events.
func (s *standIn) wait(ctx context.Context, n int64) error {
	return await.Until(ctx, relayLimit, time.Millisecond, func(context.Context) error {
		if took := s.took.Load(); took < n {
			return fmt.Errorf("%d of %d events were sent", took, n)
		}
		return nil
	})
}

// outboxRig is an outbox on MariaDB.
type outboxRig struct {
	server *labserver.Server
	db     *taskstore.Store
	store  *outbox.Store
}

// Relay measures the relay beside the raw loop, in the same run and with the same stand-in broker.
func Relay(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	server, err := labserver.Start(ctx, labserver.KindMariaDB, labserver.Options{Database: "bench"})
	if err != nil {
		return nil, err
	}
	s := Servers{SQL: server}
	defer s.End()
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: server.URL("")})
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Migrate(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	r := &outboxRig{server: server, db: db, store: outbox.NewStore(db)}
	rates, err := r.rates(ctx)
	if err != nil {
		return nil, err
	}
	delays, err := r.delays(ctx)
	if err != nil {
		return nil, err
	}
	toKafka, err := r.realKafka(ctx)
	return slices.Concat(rates, delays, toKafka), err
}

// rates drains the same backlog by the raw loop and by the relay with two sizes of batches, in turns.
func (r *outboxRig) rates(ctx context.Context) ([]figure.Figure, error) {
	ways := map[string]func(context.Context) error{
		"raw":   r.rawLoop,
		"large": func(ctx context.Context) error { return r.drain(ctx, relayBatch) },
		"small": func(ctx context.Context) error { return r.drain(ctx, relaySmall) },
	}
	rate, cost := map[string][]float64{}, map[string]labserver.Counters{}
	for range relayRounds {
		for _, name := range []string{"raw", "large", "small"} {
			if err := r.fill(ctx); err != nil {
				return nil, fmt.Errorf("fill: %w", err)
			}
			before, err := r.server.Counters(ctx)
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := ways[name](ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			rate[name] = append(rate[name], PerSecond(relayEvents, time.Since(began)))
			after, err := r.server.Counters(ctx)
			if err != nil {
				return nil, err
			}
			cost[name] = after.Sub(before).Per(relayEvents)
		}
	}
	raw, large, small := figure.Median(rate["raw"]), figure.Median(rate["large"]), figure.Median(rate["small"])
	note := fmt.Sprintf("%d events, median of %d rounds, MariaDB, broker answers after %s", relayEvents, relayRounds, brokerAnswer)
	return []figure.Figure{
		{Name: "raw loop, 500 rows: select, send, mark", Measured: raw, Unit: "/s", Note: note},
		{Name: "relay, batches of 500", Measured: large, Unit: "/s", Note: note},
		{Name: "relay, batches of 500, to the raw loop", Measured: large / raw, Unit: "×", Asked: 0.7, Relation: "≥"},
		{Name: "relay, batches of 500, to one that sends 20 a second", Measured: large / slowRelay, Unit: "×", Asked: 500, Relation: "≥"},
		{Name: "relay, batches of 20", Measured: small, Unit: "/s", Note: note},
		{Name: "relay, batches of 20, to the raw loop", Measured: small / raw, Unit: "×"},
		{Name: "SQL statements an event, batches of 500", Measured: cost["large"].Statements, Asked: 0.02, Relation: "≤", Note: "MariaDB's Questions"},
		{Name: "commits an event, batches of 500", Measured: cost["large"].Named["Com_commit"], Asked: 0.005, Relation: "≤"},
		{Name: "SQL statements an event, batches of 20", Measured: cost["small"].Statements, Asked: 0.15, Relation: "≤"},
	}, nil
}

// fill makes a backlog, and nothing else.
func (r *outboxRig) fill(ctx context.Context) error {
	if _, err := r.db.DB().ExecContext(ctx, "TRUNCATE TABLE outbox_event"); err != nil {
		return err
	}
	for range relayEvents / relayBatch {
		if err := r.insert(ctx, relayBatch); err != nil {
			return err
		}
	}
	return nil
}

// insert commits n events in one statement.
func (r *outboxRig) insert(ctx context.Context, n int) error {
	const row = "(?, 'ingest-tasks', ?, ?, NOW(6), NOW(6))"
	args := make([]any, 0, 3*n)
	payload := `{"text":"` + strings.Repeat("x", relayPayload) + `"}`
	for range n {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		args = append(args, id.String(), id.String(), payload)
	}
	_, err := r.db.DB().ExecContext(ctx, "INSERT INTO outbox_event (id, topic, message_key, payload, wake_at, created_at) VALUES "+
		row+strings.Repeat(", "+row, n-1), args...)
	return err
}

// rawLoop is the least that a relay must do, one batch after the other: it locks its rows while the broker answers.
func (r *outboxRig) rawLoop(ctx context.Context) error {
	broker := &standIn{}
	for {
		n, err := r.rawBatch(ctx, broker)
		if err != nil || n == 0 {
			return err
		}
	}
}

// rawBatch is one turn of it.
func (r *outboxRig) rawBatch(ctx context.Context, broker *standIn) (int, error) {
	tx, err := r.db.DB().BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	rows, err := tx.QueryContext(ctx, `SELECT seq, id, topic, message_key, payload FROM outbox_event FORCE INDEX (outbox_event_sweep)
		WHERE status = 'NEW' AND wake_at <= NOW(6) ORDER BY wake_at, seq LIMIT ? FOR UPDATE SKIP LOCKED`, relayBatch)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var events []outbox.Event
	var seqs []any
	for rows.Next() {
		var e outbox.Event
		if err := rows.Scan(&e.Seq, &e.ID, &e.Topic, &e.Key, &e.Payload); err != nil {
			return 0, err
		}
		events, seqs = append(events, e), append(seqs, e.Seq)
	}
	if err := rows.Err(); err != nil || len(events) == 0 {
		return 0, err
	}
	broker.Send(ctx, events)
	if _, err := tx.ExecContext(ctx, "UPDATE outbox_event SET status = 'SENT', sent_at = NOW(6), wake_at = NOW(6) WHERE seq IN (?"+
		strings.Repeat(", ?", len(seqs)-1)+")", seqs...); err != nil {
		return 0, err
	}
	return len(events), tx.Commit()
}

// drain runs the product's relay until everything is sent and marked.
func (r *outboxRig) drain(ctx context.Context, batch int) error {
	broker := &standIn{}
	return r.relaying(ctx, batch, broker, func(ctx context.Context) error {
		return broker.wait(ctx, relayEvents)
	})
}

// relaying runs f beside a relay and stops that: its last marks are written by then.
func (r *outboxRig) relaying(ctx context.Context, batch int, broker outbox.Sender, f func(context.Context) error) error {
	cfg := outbox.NewDefaultConfig()
	cfg.BatchSize = batch
	one, err := outbox.NewRelay(cfg, outbox.Deps{Store: r.store, Sender: broker, Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		return err
	}
	stop := await.Beside(ctx, one.Run)
	return errors.Join(f(ctx), stop())
}

// delays measures how long single events wait for their mark at an even rate, with the default settings and no signal: the relay
// finds them by looking.
func (r *outboxRig) delays(ctx context.Context) ([]figure.Figure, error) {
	if _, err := r.db.DB().ExecContext(ctx, "TRUNCATE TABLE outbox_event"); err != nil {
		return nil, err
	}
	const n = delayRate * delaySeconds
	broker := &standIn{}
	err := r.relaying(ctx, relaySmall, broker, func(ctx context.Context) error {
		var writers errgroup.Group
		ticker := time.NewTicker(time.Second / delayRate)
		defer ticker.Stop()
		for range n {
			<-ticker.C
			writers.Go(func() error { return r.insert(ctx, 1) })
		}
		if err := writers.Wait(); err != nil {
			return err
		}
		return broker.wait(ctx, n)
	})
	if err != nil {
		return nil, err
	}
	waits, err := tables.Query(ctx, r.db.Reader(), func(r *sql.Rows) (time.Duration, error) {
		var micros int64
		err := r.Scan(&micros)
		return time.Duration(micros) * time.Microsecond, err
	}, "SELECT TIMESTAMPDIFF(MICROSECOND, created_at, sent_at) FROM outbox_event WHERE status = 'SENT'")
	if err != nil {
		return nil, err
	}
	if len(waits) != n {
		return nil, fmt.Errorf("%d of %d events are marked as sent", len(waits), n)
	}
	note := fmt.Sprintf("%d events, createdAt → sentAt by MariaDB's clock, found by looking", n)
	return []figure.Figure{
		{Name: fmt.Sprintf("publish delay at %d/s, p50", delayRate), Measured: figure.Ms(figure.Percentile(waits, 50)), Unit: "ms", Asked: 10, Relation: "≤", Note: note},
		{Name: fmt.Sprintf("publish delay at %d/s, p99", delayRate), Measured: figure.Ms(figure.Percentile(waits, 99)), Unit: "ms", Asked: 100, Relation: "≤"},
	}, nil
}

// rawLanes are the batches that the raw producer has under way, as many as the relay.
const rawLanes = 4

// counting is a sender that counts what was acknowledged.
type counting struct {
	outbox.Sender
	standIn
}

// Send implements outbox.Sender.
func (c *counting) Send(ctx context.Context, events []outbox.Event) []outbox.Result {
	out := c.Sender.Send(ctx, events)
	for _, r := range out {
		if r.Err == nil {
			c.took.Add(1)
		}
	}
	return out
}

// Probe implements outbox.Sender.
func (c *counting) Probe(ctx context.Context) error { return c.Sender.Probe(ctx) }

// realKafka is the relay to a real broker beside its own producer without an outbox.
func (r *outboxRig) realKafka(ctx context.Context) ([]figure.Figure, error) {
	server, err := labserver.Start(ctx, labserver.KindKafka, labserver.Options{})
	if err != nil {
		return nil, err
	}
	s := Servers{Kafka: server}
	defer s.End()
	cfg := kafkaq.NewDefaultConfig(server.Addr)
	if _, err := kafkaq.Init(ctx, cfg, kafkaq.TopicParams{Partitions: kafkaPartitions}); err != nil {
		return nil, err
	}
	client, err := kafkaq.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	producer := kafkaq.NewProducer(client)
	defer func() { _ = producer.Close() }()
	if err := r.fill(ctx); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	raw, err := r.rawProducer(ctx, producer)
	if err != nil {
		return nil, fmt.Errorf("raw producer: %w", err)
	}
	sender := &counting{Sender: producer}
	began := time.Now()
	if err := r.relaying(ctx, relayBatch, sender, func(ctx context.Context) error { return sender.wait(ctx, relayEvents) }); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	sent := PerSecond(relayEvents, time.Since(began))
	return []figure.Figure{
		{Name: "relay to a real Kafka, batches of 500", Measured: sent, Unit: "/s", Asked: 10_000, Relation: "≥", Note: fmt.Sprintf("%d events, %d partitions, acks=all, idempotent", relayEvents, kafkaPartitions)},
		{Name: "share of its producer's own rate", Measured: sent / raw, Unit: "×", Note: fmt.Sprintf("without an outbox %.0f/s", raw)},
	}, nil
}

// rawProducer sends as many events of the same size as the outbox holds, and returns the rate; one batch before them opens the
// connections.
func (r *outboxRig) rawProducer(ctx context.Context, producer *kafkaq.Producer) (float64, error) {
	events, err := r.store.Turn(ctx, outbox.Turn{Status: outbox.StatusNew, Limit: relayBatch, Token: "bench", Lease: 0}) // over at once
	if err != nil {
		return 0, err
	}
	batch := make([]outbox.Event, len(events))
	for i, e := range events {
		batch[i] = e.Event
	}
	send := func() error {
		for _, one := range producer.Send(ctx, batch) {
			if one.Err != nil {
				return one.Err
			}
		}
		return nil
	}
	if err := send(); err != nil {
		return 0, err
	}
	var left atomic.Int64
	left.Store(relayEvents / relayBatch)
	began := time.Now()
	var lanes errgroup.Group
	for range rawLanes {
		lanes.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := send(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = lanes.Wait()
	return PerSecond(relayEvents, time.Since(began)), err
}
