package mirror_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

// audited is a change as a foreign program reads it in the stream.
type audited struct {
	ID         string    `json:"id"`
	TaskID     string    `json:"taskId"`
	FromStatus *string   `json:"fromStatus"`
	ToStatus   string    `json:"toStatus"`
	Reason     string    `json:"reason"`
	Actor      string    `json:"actor"`
	CreatedAt  time.Time `json:"createdAt"`
}

// key is what a change is known by.
func (a audited) key() string { return a.ID + "." + a.TaskID }

// withAudit gives a world an audit stream.
func (w *world) withAudit() *world {
	w.cfg.AuditStream = w.cfg.Queue + ".audit"
	return w
}

// written is the log of all tasks.
func (w *world) written() []taskstate.Transition {
	w.t.Helper()
	calls, err := w.tasks.CallNumbers(w.t.Context(), []taskstate.Span{{First: 0, Last: math.MaxInt64}}, math.MaxInt32)
	require.NoError(w.t, err)
	changes, err := w.tasks.Changes(w.t.Context(), calls)
	require.NoError(w.t, err)
	return changes
}

// stream reads the changes in the audit stream, from its beginning to a message that the test appends.
func (w *world) stream() (out []audited) {
	w.t.Helper()
	end := uuid.NewString()
	require.NoError(w.t, w.ch.PublishWithContext(w.t.Context(), "", w.cfg.AuditStream, true, false, amqp.Publishing{MessageId: end}))
	ch, err := w.conn.Channel()
	require.NoError(w.t, err)
	defer ch.Close() //nolint:errcheck // the end of the consumer
	require.NoError(w.t, ch.Qos(100, 0, false))
	in, err := ch.ConsumeWithContext(w.t.Context(), w.cfg.AuditStream, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	require.NoError(w.t, err)
	for {
		select {
		case d, open := <-in:
			require.True(w.t, open, "the consumer was cancelled")
			require.NoError(w.t, d.Ack(false))
			if d.MessageId == end {
				return out
			}
			if d.Headers["taskId"] == nil {
				continue
			}
			require.Equal(w.t, "task.transition", d.Type)
			var one audited
			require.NoError(w.t, json.Unmarshal(d.Body, &one), "%s", d.Body)
			require.Equal(w.t, one.key(), d.MessageId)
			require.Equal(w.t, one.TaskID, d.Headers["taskId"])
			out = append(out, one)
		case <-time.After(waitLimit):
			require.Fail(w.t, "the end of the stream does not come")
		}
	}
}

// appended waits until the stream has all that is written: each change once or, after a restart, again, and those of a task in their order.
func (w *world) appended(m *running) []audited {
	w.t.Helper()
	asked, want := time.Now(), w.written()
	w.eventually("the audit stream has all changes", func() bool {
		ago := time.Since(asked)
		lag, shown := m.gauge("mirror_audit_lag_seconds")
		return shown && lag < ago.Seconds()
	})
	got := w.stream()
	first := map[string]int{}
	for i, one := range got {
		if _, again := first[one.key()]; !again {
			first[one.key()] = i
		}
	}
	require.Len(w.t, first, len(want))
	last := map[string]int{}
	for _, t := range want {
		key := audited{ID: strconv.FormatInt(t.ID, 10), TaskID: t.TaskID}.key()
		at, there := first[key]
		require.True(w.t, there, "%s is not in the stream", key)
		one := got[at]
		if before, had := last[t.TaskID]; had {
			require.Greater(w.t, at, before, "the changes of task %s are out of order", t.TaskID)
		}
		last[t.TaskID] = at
		require.Equal(w.t, string(t.To), one.ToStatus)
		require.Equal(w.t, string(t.Reason), one.Reason)
		require.Equal(w.t, t.Actor, one.Actor)
		require.True(w.t, t.CreatedAt.Equal(one.CreatedAt))
	}
	return got
}

// Every change of every task is in the stream, also those from before the mirror ran; one that starts again goes on where it was.
func TestEveryChangeIsAppendedToTheAuditStream(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.withAudit()
		old := w.submit(3)
		w.suspend(old[1])
		w.cancel(old[2])
		m := w.start()
		require.Len(t, w.appended(m), 5)
		fresh := w.submit(700) // more than a statement reads
		w.cancel(fresh...)
		for range 150 { // more calls than are read at once
			w.submit(1)
		}
		n := len(w.appended(m))
		require.Equal(t, 5+2*700+150, n)
		m.stop()
		w.cancel(old[0])
		m = w.start()
		again := len(w.appended(m)) - n - 1
		require.LessOrEqual(t, again, 100, "no more than the last calls that were read together are repeated")
		warning, err := m.Health()
		require.NoError(t, err)
		require.Empty(t, warning)
	})
}

// A transaction that commits after others with higher numbers is not missed.
func TestALateCommitIsAppendedToTheAuditStream(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(testing.TB) string{"mariadb": labserver.MySQLDatabase, "postgres": labserver.PostgresDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, labserver.RabbitMQ(t), address(t)).withAudit()
			id := w.submit(1)[0]
			m := w.start()
			require.Len(t, w.appended(m), 1)
			err := w.tasks.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, now taskstate.DBClock) error {
				raw := sqldb.RawID(w.tasks.Dialect(), id)
				binary, err := uuid.MustParse(id).MarshalBinary()
				require.NoError(t, err)
				call := uuid.New()
				_, err = tx.ExecContext(ctx, `INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, tasks, ids, created_at)
					VALUES (?, 'QUEUED', 'QUEUED', 'SILENT', 1, 'system:test', 1, ?, ?)`, sqldb.RawID(w.tasks.Dialect(), call.String()), binary, now.Now)
				if err != nil {
					return err
				}
				others := w.submit(2)
				w.appended(m)
				w.cancel(others...)
				w.appended(m)
				_, err = tx.ExecContext(ctx, `INSERT INTO ingest_task_log (task_id, call_no) SELECT ?, MAX(no) FROM ingest_task_call WHERE call_id = ?`, raw,
					sqldb.RawID(w.tasks.Dialect(), call.String()))
				return err
			})
			require.NoError(t, err)
			require.Len(t, w.appended(m), 6)
			// What comes now says that there is no gap any more: a restart repeats the last batch only.
			w.submit(1)
			require.Len(t, w.appended(m), 7)
			m.stop()
			require.LessOrEqual(t, len(w.appended(w.start())), 8)
		})
	}
}

// hiding does not show some calls to who reads all from a number on, as if they were committed a moment later.
type hiding struct {
	taskstate.Database
	hidden []int64
}

func (h *hiding) CallNumbers(ctx context.Context, spans []taskstate.Span, limit int) ([]int64, error) {
	calls, err := h.Database.CallNumbers(ctx, spans, limit)
	if spans[0].Last == math.MaxInt64 {
		calls = slices.DeleteFunc(calls, func(no int64) bool { return slices.Contains(h.hidden, no) })
	}
	return calls, err
}

// A call that appears between two reads is appended before a later one of the same task.
func TestLateCallsKeepTheOrderOfATask(t *testing.T) {
	t.Parallel()
	w := onSQLite(t).withAudit()
	ids := w.submit(2)
	for range 3 {
		w.suspend(ids...)
		w.apply(ids, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Resume(m, t, operator, "")
		})
	}
	all := w.written()
	db := &hiding{Database: w.tasks}
	for _, one := range all[len(ids):] {
		if one.ID%2 == 0 {
			db.hidden = append(db.hidden, one.ID)
		}
	}
	require.Len(t, w.appended(w.startOn(db)), len(all))
}

// A stream that was deleted is made again with all that the database has, and nobody's copies wait for it.
func TestADeletedAuditStreamIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := onSQLite(t).withAudit()
	w.submit(3)
	m := w.start()
	require.Len(t, w.appended(m), 3)
	_, err := w.ch.QueueDelete(w.cfg.AuditStream, false, false, false)
	require.NoError(t, err)
	w.submit(1)
	w.eventually("the stream is there again", func() bool { return w.ready(w.cfg.AuditStream) >= 0 })
	require.Len(t, w.appended(m), 4)
	m.knows(4)
}

// A database that was restored from a backup gives numbers once more that the stream has: what it writes then is appended.
func TestARestoredDatabaseIsAppendedToTheAuditStream(t *testing.T) {
	t.Parallel()
	w := onSQLite(t).withAudit()
	w.submit(5)
	m := w.start()
	require.Len(t, w.appended(m), 5)
	m.stop()
	lost := w.tasks
	w.tasks = openStore(t, taskstoretest.SQLite(t))
	w.submit(2)
	m = w.start()
	want := w.written()
	w.eventually("the changes of the other database are appended", func() bool { _, shown := m.gauge("mirror_audit_lag_seconds"); return shown })
	got := w.stream()
	require.Len(t, got, 7)
	require.Equal(t, want[0].TaskID, got[5].TaskID)
	require.Equal(t, want[1].TaskID, got[6].TaskID)
	m.stop()
	require.Contains(t, m.log.String(), "it was restored, or is another one")
	w.tasks = lost
}

// An audit stream that cannot be used is a warning: tasks are copied all the same.
func TestCopiesDoNotWaitForTheAuditStream(t *testing.T) {
	t.Parallel()
	w := onSQLite(t).withAudit()
	_, err := w.ch.QueueDeclare(w.cfg.AuditStream, true, false, false, false, nil) // no stream
	require.NoError(t, err)
	w.submit(2)
	m := w.start()
	m.knows(2)
	w.eventually("a warning names the stream", func() bool {
		warning, err := m.Health()
		return err == nil && strings.Contains(warning, w.cfg.AuditStream)
	})
	_, shown := m.gauge("mirror_audit_lag_seconds")
	require.False(t, shown)
	_, err = w.ch.QueueDelete(w.cfg.AuditStream, false, false, false)
	require.NoError(t, err)
	require.Len(t, w.appended(m), 2)
}

// A stream with other arguments, and with messages of others, is used as it is, and said.
func TestAnAuditStreamWithOtherArgumentsIsUsed(t *testing.T) {
	t.Parallel()
	w := onSQLite(t).withAudit()
	_, err := w.ch.QueueDeclare(w.cfg.AuditStream, true, false, false, false, amqp.Table{"x-queue-type": "stream", "x-max-age": "1h"})
	require.NoError(t, err)
	require.NoError(t, w.ch.PublishWithContext(t.Context(), "", w.cfg.AuditStream, true, false, amqp.Publishing{Body: []byte("{}"), Type: "task.transition"}))
	w.submit(2)
	m := w.start()
	require.Len(t, w.appended(m), 2)
	warning, err := m.Health()
	require.NoError(t, err)
	require.Contains(t, warning, "other arguments")
}
