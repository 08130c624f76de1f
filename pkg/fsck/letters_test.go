package fsck_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A task may die between the look at the log and the look at the dead letters: its dead letter is of a death all the same.
func TestADeadLetterOfADeathSinceTheLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.queue.deadLetters = append(w.queue.deadLetters, ingestq.WrittenDeadLetter{ID: "8-0", TaskID: w.good, Fence: 77})
	w.queue.before = func() {
		w.sql(`INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, tasks, ids, created_at)
			SELECT call_id, from_status, 'DEAD', reason, timeline, actor, 1, x'', created_at
			FROM ingest_task_transition WHERE task_id = ? AND to_status = 'SUCCEEDED'`, w.good)
		w.sql(`INSERT INTO ingest_task_log (task_id, call_no, attempt_count, crash_count, fence)
			SELECT ?, MAX(no), 0, 0, 77 FROM ingest_task_call`, w.good)
	}
	require.Zero(t, w.check().Violations())
}

// A dead letter that an operator dropped, or whose task he replayed since the look at the rows, is no loss.
func TestADeadLetterThatAnOperatorTookOut(t *testing.T) {
	t.Parallel()
	for name, took := range map[string]func(w *world){
		"dropped": func(w *world) {
			fence := w.read(`SELECT CAST(fence AS TEXT) FROM ingest_task WHERE id = ?`, w.dead)
			w.sql(`INSERT INTO audit_event (created_at, action, actor, role, key_id, ip, request_id, target, detail, times)
				VALUES (?, 'letter_drop', 'root', 'operator', '', '', '', ?, '', 1)`, now(), w.dead+"-"+fence)
		},
		"replayed": func(w *world) {
			w.queue.before = func() { w.state("status = 'QUEUED'", w.dead) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databases["sqlite"](t))
			w.queue.deadLetters = nil
			took(w)
			for _, e := range w.check().Rule("I18").Examples {
				require.Fail(t, fmt.Sprint(e))
			}
		})
	}
}

// A queue that was lost after a dead letter was written, and before its row says so, is no violation; one that was lost before the death is.
func TestADeadLetterThatWentWithTheQueue(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		w.queue.deadLetters = nil
		var died taskstate.DBTime
		require.NoError(t, w.store.Reader().QueryRowContext(t.Context(), "SELECT MAX(created_at) FROM ingest_task_transition WHERE task_id = '"+w.dead+"'").Scan(&died))
		w.sql(`UPDATE ingest_task_state SET updated_at = ? WHERE id = ?`, died.Add(time.Second), sqldb.RawID(w.store.Dialect(), w.dead))
		for at, violations := range map[time.Duration]int64{-time.Millisecond: 1, time.Millisecond: 0} {
			w.options.Flushes = []time.Time{died.Add(-time.Hour), died.Add(at)}
			require.Equal(t, violations, w.check().Rule("I18").Violations, at)
		}
	})
}
