package fsck_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Where both transports are set, a task may have died on Kafka, or its owed letter become an event: Redis has none of them.
func TestDeadLettersOfBothTransports(t *testing.T) {
	t.Parallel()
	for name, open := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t))
			w.queue.deadLetters = nil
			require.NotZero(t, w.check().Rule("I18").Violations, "written, and there is none")
			w.state("dlq_state = 'none'", w.dead)
			require.NotZero(t, w.check().Rule("I18").Violations, "neither owed nor sent")

			w.sent(w.dead)
			require.NotZero(t, w.check().Rule("I18").Violations, "a delivery is no dead letter")
			w.sql(`UPDATE outbox_event SET topic = 'ingest-tasks-dlq', payload = '{"taskId":"x","fence":77,"sourceStream":"ingest-tasks"}' WHERE message_key = ?`, w.dead)
			require.NotZero(t, w.check().Rule("I18").Violations, "the dead letter of another death")
			task, err := w.store.Get(t.Context(), taskstate.System(), w.dead)
			require.NoError(t, err)
			require.EqualValues(t, 1, task.Fence)
			w.sql(`UPDATE outbox_event SET payload = '{"taskId":"x","fence":1,"sourceStream":"ingest-tasks"}' WHERE message_key = ?`, w.dead)
			require.NoError(t, w.check().Err())
			w.state("dlq_state = 'written'", w.dead)
			require.NoError(t, w.check().Err())
		})
	}
}

// A QUEUED task whose delivery died waits for a broker or an operator, and says so; Redis' read watermark does not judge it.
func TestAQueuedTaskWithADeadEventRests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	id := w.accept(w.id("8002"), "key-9")
	w.state("wake_at = ?", id, now().Add(-time.Hour))
	report := w.check()
	require.NotZero(t, report.Rule("L1").Violations)
	require.NotZero(t, report.Rule("I15").Violations)
	w.sent(id)
	require.NotZero(t, w.check().Rule("L1").Violations, "one that was sent does not excuse it")
	w.sql(`UPDATE outbox_event SET status = 'DEAD', sent_at = NULL, cause = 'REFUSED', last_error = 'x' WHERE message_key = ?`, id)
	report = w.check()
	require.Zero(t, report.Rule("L1").Violations)
	require.Zero(t, report.Rule("I15").Violations)
}
