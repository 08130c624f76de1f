package taskrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	pb "github.com/millweir/millweir/proto"
)

const transportTopic = "ingest-tasks"

// waitLimit only keeps a broken test from hanging.
const waitLimit = 3 * time.Minute

// memSender brings deliveries to a topic in memory.
type memSender struct {
	stream *memStream
	down   atomic.Bool
}

func (s *memSender) Send(_ context.Context, events []outbox.Event) []outbox.Result {
	out := make([]outbox.Result, len(events))
	for i, e := range events {
		out[i].Seq = e.Seq
		envelope, err := pb.Decode(e.Payload)
		switch {
		case s.down.Load():
			out[i].Err = errors.New("connection refused")
		case e.Topic == transportTopic && err == nil:
			s.stream.send(envelope.GetTaskId())
		}
	}
	return out
}

func (s *memSender) Probe(context.Context) error {
	if s.down.Load() {
		return errors.New("connection refused")
	}
	return nil
}

// transportLab is a real database with its outbox and relay, and a topic in memory.
type transportLab struct {
	t      *testing.T
	open   func(outbox taskstate.OutboxFunc) *taskstore.Store
	store  *taskstore.Store // writes events
	stream *memStream
	sender *memSender
}

// onEachTransportLab runs a test on every database.
func onEachTransportLab(t *testing.T, test func(t *testing.T, l *transportLab)) {
	t.Helper()
	for name, config := range map[string]func(t *testing.T) taskstore.Config{
		"sqlite": func(t *testing.T) taskstore.Config {
			return taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)}
		},
		"mysql": func(t *testing.T) taskstore.Config { return taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t)} },
		"postgres": func(t *testing.T) taskstore.Config {
			return taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			l := &transportLab{t: t, stream: newMemStream(true)}
			l.sender = &memSender{stream: l.stream}
			l.open = func(f taskstate.OutboxFunc) *taskstore.Store {
				cfg := cfg
				cfg.Outbox = f
				store, err := taskstore.Open(t.Context(), cfg)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, store.Close()) })
				return store
			}
			l.store = l.open(outbox.NewWriter(name, transportTopic, "ingest-workers").Write)
			_, err := l.store.Migrate(t.Context())
			require.NoError(t, err)
			test(t, l)
		})
	}
}

func (l *transportLab) quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// background runs f until the end of the test, or until stop.
func (l *transportLab) background(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			require.NoError(l.t, <-done)
		}
	}
	l.t.Cleanup(stop)
	return stop
}

// relay sends events.
func (l *transportLab) relay() (stop func()) {
	cfg := outbox.NewDefaultConfig()
	cfg.Interval, cfg.BaseBackoff, cfg.ProbeEvery = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	cfg.MaxAttempts = 2
	r, err := outbox.NewRelay(cfg, outbox.Deps{Store: outbox.NewStore(l.store), Sender: l.sender, Log: l.quiet(), Clock: time.Now})
	require.NoError(l.t, err)
	return l.background(r.Run)
}

// runner runs tasks of a kind.
func (l *transportLab) runner(name string, kind Handler, edit func(c *Config, d *Deps)) (stop func()) {
	cfg := NewDefaultConfig()
	cfg.Process, cfg.Concurrency = name, 4
	cfg.Policy.BaseBackoff, cfg.Policy.Slack = 10*time.Millisecond, 200*time.Millisecond
	cfg.RecoveryInterval, cfg.SweepInterval, cfg.StopGrace = 50*time.Millisecond, 50*time.Millisecond, 0
	deps := Deps{
		Store: l.store, Queue: l.stream.Join(name), Outbox: outbox.NewReader(l.store, transportTopic),
		Handlers: map[string]Handler{"test": kind}, Log: l.quiet(),
	}
	if edit != nil {
		edit(&cfg, &deps)
	}
	return l.background(New(cfg, deps).Run)
}

// submit accepts n tasks through a store.
func (l *transportLab) submit(store *taskstore.Store, n int) []string {
	l.t.Helper()
	tasks, err := store.Submit(l.t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		out := make([]taskstate.NewTask, n)
		for i := range out {
			out[i] = taskstate.NewTask{
				Task:  taskstate.Task{ID: uuid.Must(uuid.NewV7()).String(), UserID: "local", Type: "test", Channel: "http", MaxAttempts: 2},
				Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "local"},
			}
		}
		return out, nil
	})
	require.NoError(l.t, err)
	ids := make([]string, n)
	for i, t := range tasks {
		ids[i] = t.ID
	}
	return ids
}

// until waits until all of ids have a status.
func (l *transportLab) until(status taskstate.Status, ids []string) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		tasks, err := l.store.GetMany(l.t.Context(), taskstate.System(), ids)
		require.NoError(l.t, err)
		for _, t := range tasks {
			if t.Status != status {
				return false
			}
		}
		return len(tasks) == len(ids)
	}, waitLimit, 10*time.Millisecond)
}

// events counts the events of a topic by status.
func (l *transportLab) events(topic string) map[outbox.Status]int {
	l.t.Helper()
	out := map[outbox.Status]int{}
	rows, err := l.store.Reader().QueryContext(l.t.Context(), "SELECT status, COUNT(*) FROM outbox_event WHERE topic = ? GROUP BY status", topic)
	require.NoError(l.t, err)
	defer rows.Close() //nolint:errcheck // read to its end
	for rows.Next() {
		var status outbox.Status
		var n int
		require.NoError(l.t, rows.Scan(&status, &n))
		out[status] = n
	}
	require.NoError(l.t, rows.Err())
	return out
}

// legal checks the logs of tasks by the rules of history.
func (l *transportLab) legal(ids []string) {
	l.t.Helper()
	after := map[string]int64{}
	for _, id := range ids {
		after[id] = 0
	}
	log, err := l.store.TransitionsOf(l.t.Context(), after, 10_000)
	require.NoError(l.t, err)
	checker := history.New(history.Options{})
	for _, tr := range log {
		checker.Add(tr)
	}
	require.Zero(l.t, checker.Report().Violations(), "%v", checker.Report())
}

// Tasks travel through the outbox: failures are retried from the table, a stop hands back by an event, deaths have letters.
func TestTasksTravelThroughTheOutbox(t *testing.T) {
	t.Parallel()
	onEachTransportLab(t, func(t *testing.T, l *transportLab) {
		held := make(chan struct{}, 100)
		var through atomic.Bool
		kind := &testHandler{run: func(ctx context.Context, j Job) Result {
			if !through.Load() {
				held <- struct{}{}
				<-ctx.Done()
				return Result{Err: ctx.Err()}
			}
			return Result{}
		}}
		l.relay()
		ids := l.submit(l.store, 20)
		stop := l.runner("a", kind, func(c *Config, _ *Deps) { c.HandBack = waitLimit }) // how soon is judged by TestRecoveryTimes
		for range 4 {
			<-held
		}
		stop()
		events := l.events(transportTopic) // one look: the relay goes on
		require.Equal(t, 24, events[outbox.StatusNew]+events[outbox.StatusSent], "one more for each that was handed back")
		through.Store(true)
		l.stream.rebalance()
		stop = l.runner("b", kind, nil)
		l.until(taskstate.StatusSucceeded, ids)
		stop()

		failing := l.submit(l.store, 10)
		l.runner("c", &testHandler{run: func(context.Context, Job) Result { return Result{Err: errors.New("no answer")} }}, nil)
		l.until(taskstate.StatusDead, failing)
		deadLetters := l.events(outbox.DLQTopic(transportTopic))
		require.Equal(t, len(failing), deadLetters[outbox.StatusNew]+deadLetters[outbox.StatusSent])
		require.Eventually(t, func() bool {
			_, pending, _, _ := l.stream.counts()
			return pending == 0
		}, waitLimit, 10*time.Millisecond, "every record is finished")
		l.legal(append(ids, failing...))
	})
}

// What the topic lost, and what came by the other transport, is sent again; what still waits in the outbox is not doubled.
func TestLostDeliveriesAreSentAgain(t *testing.T) {
	t.Parallel()
	onEachTransportLab(t, func(t *testing.T, l *transportLab) {
		redis := l.open(nil)
		other := l.submit(redis, 30) // no event, and nobody reads its stream
		lost := l.submit(l.store, 30)
		stop := l.relay()
		require.Eventually(t, func() bool { return l.events(transportTopic)[outbox.StatusSent] == 30 }, waitLimit, 10*time.Millisecond)
		stop()
		l.stream.wipe() // the topic loses them
		waiting := l.submit(l.store, 30)
		kind := &testHandler{}
		l.runner("a", kind, nil)
		require.Eventually(t, func() bool { return l.events(transportTopic)[outbox.StatusNew] == 30+60 }, waitLimit, 20*time.Millisecond)
		tasks, err := l.store.GetMany(t.Context(), taskstate.System(), waiting)
		require.NoError(t, err)
		for _, task := range tasks {
			require.Equal(t, taskstate.StatusQueued, task.Status)
		}
		require.Equal(t, 90, l.events(transportTopic)[outbox.StatusNew], "one for each that was lost, none for those that wait")
		l.relay()
		for _, ids := range [][]string{other, lost, waiting} {
			l.until(taskstate.StatusSucceeded, ids)
		}
		require.Len(t, kind.ran(), 90, "each ran once")
		l.legal(append(append(other, lost...), waiting...))
	})
}

// Events that died of an absent broker are not written again: they are revived.
func TestEventsOfAnAbsentBrokerAreNotDoubled(t *testing.T) {
	t.Parallel()
	onEachTransportLab(t, func(t *testing.T, l *transportLab) {
		l.sender.down.Store(true)
		ids := l.submit(l.store, 25)
		stop := l.relay()
		require.Eventually(t, func() bool { return l.events(transportTopic)[outbox.StatusDead] == len(ids) }, waitLimit, 10*time.Millisecond)
		l.runner("a", &testHandler{}, nil)
		require.Eventually(t, func() bool {
			tasks, err := l.store.GetMany(t.Context(), taskstate.System(), ids)
			require.NoError(t, err)
			for _, task := range tasks {
				if task.EnqueueCount == 0 {
					return false
				}
			}
			return true
		}, waitLimit, 10*time.Millisecond, "the sweep has judged them")
		stop()
		require.Equal(t, map[outbox.Status]int{outbox.StatusDead: len(ids)}, l.events(transportTopic))
		l.sender.down.Store(false)
		l.relay()
		l.until(taskstate.StatusSucceeded, ids)
	})
}

// Dead letters change their transport with the process that finds them, each in one transaction with its mark.
func TestDeadLettersChangeTheirTransport(t *testing.T) {
	t.Parallel()
	onEachTransportLab(t, func(t *testing.T, l *transportLab) {
		redis := l.open(nil)
		kill := func(store *taskstore.Store, n int, dlq bool) []string {
			ids := l.submit(store, n)
			policy := NewDefaultConfig().Policy
			policy.DLQ = dlq
			_, err := store.Apply(t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(
				func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "x/1", Process: "x", Actor: local.Worker("x")})
				})})
			require.NoError(t, err)
			_, err = store.Apply(t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(
				func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					h := taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: local.Worker("x")}
					return taskstate.Fail(policy, m, t, h, taskstate.Failure{Code: "X", Cause: "x", Permanent: true})
				})})
			require.NoError(t, err)
			return ids
		}
		states := func(ids []string, want taskstate.DLQState) {
			t.Helper()
			require.Eventually(t, func() bool {
				tasks, err := l.store.GetMany(t.Context(), taskstate.System(), ids)
				require.NoError(t, err)
				for _, task := range tasks {
					if task.DLQ != want {
						return false
					}
				}
				return true
			}, waitLimit, 20*time.Millisecond)
		}
		dlq := outbox.DLQTopic(transportTopic)

		// Redis left them owed; Kafka takes over.
		writeDLQPending := kill(redis, 40, true)
		require.NoError(t, redis.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE ingest_task_state SET wake_at = ? WHERE status = 'DEAD'", m.Now) // the grace is over
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, "UPDATE ingest_task_call SET wake_at = ? WHERE to_status = 'DEAD' AND wake_at < ?", m.Now, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
			return err
		}))
		stop := l.runner("kafka", &testHandler{}, nil)
		states(writeDLQPending, taskstate.DLQWritten)
		stop()
		require.Equal(t, map[outbox.Status]int{outbox.StatusNew: len(writeDLQPending)}, l.events(dlq))

		// And back: those events were never sent, nor those of deaths on Kafka itself.
		died := kill(l.store, 40, false)
		require.Equal(t, map[outbox.Status]int{outbox.StatusNew: len(writeDLQPending) + len(died)}, l.events(dlq))
		stream := newMemStream(false)
		l.runner("redis", &testHandler{}, func(c *Config, d *Deps) {
			c.Policy.DLQ = true
			d.Store, d.Queue = redis, stream.Join("redis")
			d.Outbox = outbox.NewReader(redis, transportTopic)
		})
		require.Eventually(t, func() bool { return len(l.events(dlq)) == 0 }, waitLimit, 20*time.Millisecond) // writeDLQPending from here on
		states(append(writeDLQPending, died...), taskstate.DLQWritten)
		seen := map[string]bool{} // each is written at least once
		for _, deadLetter := range stream.deadLetters() {
			seen[fmt.Sprint(deadLetter.TaskID, deadLetter.Fence)] = true
		}
		require.Len(t, seen, len(writeDLQPending)+len(died))
	})
}
