package outbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// task makes a task of a status and returns its id.
func (w *world) task(status taskstate.Status) string {
	w.t.Helper()
	made, err := w.tasks.Submit(w.t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{newTask()}, nil
	})
	require.NoError(w.t, err)
	next := "NULL"
	if status == taskstate.StatusRetrying {
		next = "wake_at"
	}
	w.exec("UPDATE ingest_task_state SET status = ?, next_retry_at = "+next+" WHERE id = ?", string(status), sqldb.RawID(w.tasks.Dialect(), made[0].ID))
	return made[0].ID
}

func (w *world) janitor() *outbox.Janitor {
	w.t.Helper()
	cfg := outbox.JanitorConfig{Topic: topic, Retention: 24 * time.Hour, Interval: time.Minute}
	j, err := outbox.NewJanitor(w.store, cfg, slog.New(slog.DiscardHandler), time.Now)
	require.NoError(w.t, err)
	return j
}

// pass runs the janitor once.
func (w *world) pass(j *outbox.Janitor) int {
	w.t.Helper()
	n, err := j.Pass(w.t.Context())
	require.NoError(w.t, err)
	return n
}

// there reports whether an event exists.
func (w *world) there(id string) bool {
	w.t.Helper()
	return w.number("SELECT COUNT(*) FROM outbox_event WHERE id = ?", id) == 1
}

func TestRetentionRemovesWhatWasSent(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		queued, running := w.task(taskstate.StatusQueued), w.task(taskstate.StatusRunning)
		kept := w.insert(event{key: queued})[0]
		gone := w.insert(event{key: running}, event{key: "nobody"})
		gone = append(gone, w.insert(many(1234)...)...)
		old := w.now().Add(-25 * time.Hour)
		w.exec("UPDATE outbox_event SET status = 'SENT', sent_at = ?, wake_at = ?", old, old)
		fresh := w.insert(event{key: running})[0]
		w.exec("UPDATE outbox_event SET status = 'SENT', sent_at = ?, wake_at = ? WHERE id = ?", w.now(), w.now(), fresh)
		unsent := w.insert(event{key: running})[0]
		j := w.janitor()
		require.Equal(t, len(gone), w.pass(j))
		for _, id := range gone {
			require.False(t, w.there(id))
		}
		require.True(t, w.there(kept), "design D5 looks at a QUEUED task's last event")
		require.True(t, w.there(fresh))
		require.True(t, w.there(unsent))
		require.Equal(t, old, w.get(kept).SentAt)
		require.Zero(t, w.pass(j), "it left the front of the index")
		w.exec("UPDATE ingest_task_state SET status = 'RUNNING' WHERE id = ?", sqldb.RawID(w.tasks.Dialect(), queued))
		w.exec("UPDATE outbox_event SET wake_at = ? WHERE id = ?", old, kept) // an hour later
		require.Equal(t, 1, w.pass(j))
	})
}

func TestRetentionRemovesUnsentEventsOfTasksThatAreOver(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		var gone []string
		kept := w.insert(many(1100)...) // more than a page that belong to no task of ours: somebody waits for them
		for _, s := range []taskstate.Status{taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusCancelled} {
			gone = append(gone, w.insert(event{key: w.task(s)})...)
		}
		for _, s := range []taskstate.Status{taskstate.StatusQueued, taskstate.StatusRunning, taskstate.StatusRetrying, taskstate.StatusSuspended} {
			kept = append(kept, w.insert(event{key: w.task(s)})...)
		}
		over := w.task(taskstate.StatusSucceeded)
		retrying := w.insert(event{key: over})[0]
		w.exec("UPDATE outbox_event SET status = 'RETRYING', next_retry_at = ?, wake_at = ? WHERE id = ?", w.now().Add(forever), w.now().Add(forever), retrying)
		dead := w.insert(event{key: over})[0]
		w.exec("UPDATE outbox_event SET status = 'DEAD', cause = 'REFUSED', wake_at = ? WHERE id = ?", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), dead)
		gone = append(gone, retrying, dead)
		leased := w.insert(event{key: over}, event{key: over})
		w.exec("UPDATE outbox_event SET lease = 'x', wake_at = ? WHERE id = ?", w.now().Add(forever), leased[0])
		w.exec("UPDATE outbox_event SET lease = 'x', wake_at = ? WHERE id = ?", w.now().Add(-forever), leased[1])
		kept, gone = append(kept, leased[0]), append(gone, leased[1])
		kept = append(kept, w.insert(event{key: over, topic: outbox.DLQTopic(topic)})...) // a dead letter is owed all the same
		require.Equal(t, len(gone), w.pass(w.janitor()))
		for _, id := range gone {
			require.False(t, w.there(id))
		}
		for _, id := range kept {
			require.True(t, w.there(id))
		}
	})
}
