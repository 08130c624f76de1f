package fsck_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
)

// A task may die between the look at the log and the look at the dead letters: its letter is of a death all the same.
func TestALetterOfADeathSinceTheLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.queue.letters = append(w.queue.letters, ingestq.Letter{ID: "8-0", TaskID: w.good, Fence: 77})
	w.queue.before = func() {
		w.sql(`INSERT INTO ingest_task_transition (task_id, from_status, to_status, reason, attempt_count, crash_count, fence, timeline, actor, message, delivery, call_id, created_at)
			SELECT task_id, from_status, 'DEAD', reason, attempt_count, crash_count, 77, timeline, actor, message, delivery, call_id, created_at
			FROM ingest_task_transition WHERE task_id = ? AND to_status = 'SUCCEEDED'`, w.good)
	}
	require.Zero(t, w.check().Violations())
}
