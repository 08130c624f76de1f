package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	pb "github.com/millweir/millweir/proto"
)

const (
	topic = "ingest-tasks"
	group = "ingest-workers"
)

// databases are the configurations of every dialect, each for a database of the test's own.
var databases = map[string]func(t *testing.T) taskstore.Config{
	"sqlite": func(t *testing.T) taskstore.Config {
		t.Helper()
		return taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)}
	},
	"mysql": func(t *testing.T) taskstore.Config {
		t.Helper()
		return taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t), MaxOpen: 8}
	},
	"postgres": func(t *testing.T) taskstore.Config {
		t.Helper()
		return taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t), MaxOpen: 8}
	},
}

// bench is a migrated store whose rows have events.
type bench struct {
	*taskstore.Store
	t      *testing.T
	signal *outbox.Signal
	p      taskstate.Policy
}

// eachDatabase runs a test on every dialect.
func eachDatabase(t *testing.T, run func(t *testing.T, b *bench)) {
	t.Helper()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, newBench(t, name, config(t)))
		})
	}
}

func newBench(t *testing.T, dialect string, cfg taskstore.Config) *bench {
	t.Helper()
	b := &bench{t: t, signal: outbox.NewSignal(), p: taskstate.Policy{
		BaseBackoff: time.Second, MaxBackoff: time.Hour, Lease: time.Minute, MaxCrashes: 3, Slack: 2 * time.Second,
	}}
	if cfg.Outbox == nil {
		cfg.Outbox = outbox.NewWriter(dialect, topic, group).Write
	}
	cfg.OnEvents, cfg.Timeout, cfg.Silence = b.signal.Ring, waitLimit, waitLimit
	var err error
	b.Store, err = taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	_, err = b.Migrate(t.Context())
	require.NoError(t, err)
	return b
}

// newTask is a task of user u1.
func newTask() taskstate.NewTask {
	return taskstate.NewTask{
		Task: taskstate.Task{
			ID: uuid.Must(uuid.NewV7()).String(), UserID: "u1", Type: "document", Channel: "http", MaxAttempts: 2,
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		},
		Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "u1"},
	}
}

// submit stores tasks.
func (b *bench) submit(tasks ...taskstate.NewTask) []taskstate.Task {
	b.t.Helper()
	out, err := b.Submit(b.t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return tasks, nil
	})
	require.NoError(b.t, err)
	return out
}

// one applies f to one task.
func (b *bench) one(id string, f func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision) taskstate.Outcome {
	b.t.Helper()
	out, err := b.Apply(b.t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(f)})
	require.NoError(b.t, err)
	require.NoError(b.t, out[0].Err)
	return out[0]
}

// claim claims as a worker does.
func (b *bench) claim(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
	return taskstate.Claim(b.p, m, t, taskstate.ClaimRequest{
		Owner: "p1/1", Process: "p1", Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "p1"}, Delivery: "k:0:7",
	})
}

// fail ends the attempt of the last claim.
func (b *bench) fail(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
	h := taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "p1"}}
	return taskstate.Fail(b.p, m, t, h, taskstate.Failure{Code: "X", Cause: "no \"answer\"", Message: "no answer", Permanent: t.AttemptCount > 0})
}

// rang tells whether the signal rang since the last look.
func (b *bench) rang() bool {
	select {
	case <-b.signal.C():
		return true
	default:
		return false
	}
}

// row is an event as the table has it.
type row struct {
	outbox.Event
	status, cause, lease string
	wake                 taskstate.DBTime
}

// events reads the events of one key, in their order; "" reads all.
func (b *bench) events(key string) []row {
	b.t.Helper()
	rows, err := b.Reader().QueryContext(b.t.Context(), `SELECT seq, id, topic, message_key, payload, traceparent, status, cause,
		attempt_count, lease, wake_at, created_at FROM outbox_event WHERE message_key = ? OR ? = '' ORDER BY seq`, key, key)
	require.NoError(b.t, err)
	defer rows.Close() //nolint:errcheck // read to its end
	var out []row
	for rows.Next() {
		var r row
		var created taskstate.DBTime
		require.NoError(b.t, rows.Scan(&r.Seq, &r.ID, &r.Topic, &r.Key, &r.Payload, &r.TraceParent, &r.status, &r.cause,
			&r.AttemptCount, &r.lease, &r.wake, &created))
		r.CreatedAt = created.Time
		out = append(out, r)
	}
	require.NoError(b.t, rows.Err())
	return out
}

func TestEventsBelongToTheirRowsTransaction(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, b *bench) {
		task := b.submit(newTask())[0]
		require.True(t, b.rang())
		es := b.events(task.ID)
		require.Len(t, es, 1, "a task that was accepted")
		e := es[0]
		require.Equal(t, topic, e.Topic)
		require.Equal(t, task.TraceParent, e.TraceParent)
		require.Equal(t, "NEW none ", e.status+" "+e.cause+" "+e.lease)
		require.True(t, e.CreatedAt.Equal(task.UpdatedAt), "one instant: %s and %s", e.CreatedAt, task.UpdatedAt)
		require.True(t, e.wake.Equal(task.UpdatedAt))
		envelope, err := pb.Decode(e.Payload)
		require.NoError(t, err)
		require.Equal(t, task.ID, envelope.GetTaskId())

		b.one(task.ID, b.claim)
		require.False(t, b.rang(), "a claim sends nothing")
		require.Len(t, b.events(task.ID), 1)
		b.one(task.ID, b.fail)
		require.Len(t, b.events(task.ID), 1, "RETRYING rows need no message")
		require.False(t, b.rang())

		b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Retry(m, t, taskstate.System().Actor())
		})
		b.one(task.ID, b.claim)
		dead := b.one(task.ID, b.fail).After
		require.Equal(t, taskstate.StatusDead, dead.Status)
		require.True(t, b.rang())
		es = b.events(task.ID)
		require.Len(t, es, 2)
		require.Equal(t, outbox.DLQTopic(topic), es[1].Topic)
		require.Greater(t, es[1].Seq, es[0].Seq)
		require.True(t, es[1].CreatedAt.Equal(dead.UpdatedAt))
		var deadLetter outbox.DeadLetter
		require.NoError(t, json.Unmarshal(es[1].Payload, &deadLetter))
		require.True(t, deadLetter.FailedAt.Equal(dead.UpdatedAt))
		deadLetter.FailedAt = time.Time{}
		require.Equal(t, outbox.DeadLetter{
			TaskID: task.ID, Fence: 2, SourceStream: topic, SourceGroup: group, SourceRecordID: "k:0:7",
			LastError: "no \"answer\"", AttemptCount: 2,
		}, deadLetter)

		again := b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Replay(m, t, taskstate.System().Actor(), "")
		}).After
		es = b.events(task.ID)
		require.Len(t, es, 3, "a replay promises anew")
		require.Equal(t, topic, es[2].Topic)
		require.True(t, es[2].CreatedAt.Equal(again.UpdatedAt))

		for range 2 {
			b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Renew(b.p, m, t) })
		}
		require.Len(t, b.events(task.ID), 5, "a renewed promise is a new delivery")
	})
}

// countingTx counts the statements of a hook.
type countingTx struct {
	taskstate.Tx
	n *int
}

func (c countingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	*c.n++
	return c.Tx.ExecContext(ctx, query, args...)
}

// newCountingBench counts the statements of the writer, too.
func newCountingBench(t *testing.T, name string, cfg taskstore.Config) (b *bench, statements *int) {
	t.Helper()
	statements = new(int)
	write := outbox.NewWriter(name, topic, group).Write
	cfg.Outbox = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, rows []taskstate.Changed) (int, error) {
		return write(ctx, countingTx{tx, statements}, m, rows)
	}
	return newBench(t, name, cfg), statements
}

func TestABatchOfEventsIsOneStatement(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, statements := newCountingBench(t, name, config(t))
			tasks := make([]taskstate.NewTask, 500)
			for i := range tasks {
				tasks[i] = newTask()
			}
			b.submit(tasks...)
			seen := map[string]bool{}
			for _, e := range b.events("") {
				seen[e.Key] = true
			}
			require.Len(t, seen, len(tasks))
			require.Equal(t, 1, *statements)
		})
	}
}

func TestLargeEventsAreSpreadOverStatements(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, statements := newCountingBench(t, name, config(t))
			large, err := json.Marshal(strings.Repeat("x", 240<<10))
			require.NoError(t, err)
			tasks := make([]taskstate.NewTask, 20)
			for i := range tasks {
				tasks[i] = newTask()
				tasks[i].Payload = large
			}
			b.submit(tasks...)
			require.Len(t, b.events(""), len(tasks))
			require.Greater(t, *statements, 1)
		})
	}
}

func TestEventsThatCannotBeWrittenUndoTheirRow(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := errors.New("no room for this one")
			bad := ""
			cfg := config(t)
			write := outbox.NewWriter(name, topic, group).Write
			cfg.Outbox = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, rows []taskstate.Changed) (int, error) {
				n, err := write(ctx, tx, m, rows)
				for _, r := range rows {
					if r.Task.ID == bad {
						return n, refused
					}
				}
				return n, err
			}
			b := newBench(t, name, cfg)
			good, ill, fresh := b.submit(newTask())[0], b.submit(newTask())[0], newTask()
			bad = fresh.ID
			require.True(t, b.rang())
			_, err := b.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
				return []taskstate.NewTask{newTask(), fresh}, nil
			})
			require.ErrorIs(t, err, refused)
			require.False(t, b.rang())
			require.Len(t, b.events(""), 2, "nothing of the submit is left")
			_, err = b.Get(t.Context(), taskstate.System(), fresh.ID)
			require.ErrorIs(t, err, taskstate.ErrNotFound)

			bad = ill.ID
			outs, err := b.Apply(t.Context(), taskstate.Batch{
				IDs: []string{good.ID, ill.ID}, Scope: taskstate.System(),
				Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Renew(b.p, m, t) }),
			})
			require.NoError(t, err)
			require.NoError(t, outs[0].Err)
			require.ErrorIs(t, outs[1].Err, refused, "the bad row fails alone")
			require.Len(t, b.events(good.ID), 2)
			require.Len(t, b.events(ill.ID), 1)
			now, err := b.Get(t.Context(), taskstate.System(), ill.ID)
			require.NoError(t, err)
			require.Equal(t, ill, now)
			require.True(t, b.rang())
		})
	}
}
