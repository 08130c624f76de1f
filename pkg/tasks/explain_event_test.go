package tasks_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// On the Kafka transport a QUEUED task says where its delivery is.
func TestExplainTellsWhereTheEventIs(t *testing.T) {
	t.Parallel()
	const topic = "ingest-tasks"
	w := ingesttest.NewWorld(t, ingesttest.Options{Outbox: outbox.NewWriter("sqlite", topic, "ingest-workers").Write})
	reads := tasks.NewExplainer(w.Store, outbox.NewReader(w.Store, topic), nil, ingest.Descriptions())
	id := w.Upload("one").Task.ID
	explain := func(words ...string) ingest.Explanation {
		t.Helper()
		e, err := reads.Explain(t.Context(), w.Caller, id)
		require.NoError(t, err)
		for _, want := range words {
			require.Contains(t, e.Words(), want)
		}
		return e
	}
	set := func(assignments string, args ...any) {
		t.Helper()
		require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE outbox_event SET "+assignments+" WHERE topic = ?", append(args, topic)...)
			return err
		}))
	}
	e := explain("is QUEUED", "waits in the outbox since", "Next: a relay sends its delivery")
	require.Equal(t, outbox.StatusNew, e.Event.Status)

	m, err := w.Store.Moment(t.Context())
	require.NoError(t, err)
	next := m.Now.Add(time.Minute)
	set("status = 'RETRYING', cause = 'BROKER_UNAVAILABLE', attempt_count = 3, next_retry_at = ?, last_error = 'dial tcp: connection refused'", next)
	e = explain("waits in the outbox for the next attempt at", "3 attempts to send it failed.", "connection refused.", "Next: a relay tries again to send its delivery at")
	require.True(t, e.NextAt.Equal(next))

	set("status = 'DEAD', attempt_count = 10, next_retry_at = NULL")
	explain("could not be sent (BROKER_UNAVAILABLE).", "10 attempts to send it failed.", "Next: a relay sends its delivery as soon as a broker answers.")
	set("cause = 'REFUSED', last_error = 'message too large'")
	explain("could not be sent (REFUSED).", "The last error of sending: message too large.", "Next: nothing until an operator puts its delivery back (requeue).")

	set("status = 'SENT', cause = 'none', attempt_count = 0, last_error = NULL, sent_at = ?", m.Now)
	explain("was sent at", "Next: a worker with a free slot claims it")
	w.Claim(id)
	require.Nil(t, explain("is RUNNING").Event, "only a QUEUED task needs its delivery")

	// A replay has an event of its own, and a dead letter is no delivery.
	_, err = w.App.Cancel(t.Context(), w.Caller, id)
	require.NoError(t, err)
	_, err = w.App.Retry(t.Context(), w.Caller, id)
	require.NoError(t, err)
	require.Equal(t, outbox.StatusNew, explain("is QUEUED", "waits in the outbox").Event.Status)
	require.EqualValues(t, 2, w.Number("SELECT COUNT(*) FROM outbox_event WHERE message_key = ? AND topic = ?", id, topic))
}

func TestADeliveryIsNamedByItsPartition(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"3:1700000000000-0": "delivery 1700000000000-0 of partition 3", "1700000000000-0": "delivery 1700000000000-0", "k:0:17": "the record at offset 17 of partition 0",
	} {
		require.Equal(t, "Its last claim came by "+want+".", tasks.BroughtBy(id))
	}
}

func TestExplainEachState(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	a := w.Upload("one")
	said := func(words ...string) {
		t.Helper()
		e, err := r.Explain.Explain(t.Context(), w.Caller, a.Task.ID)
		require.NoError(t, err)
		for _, want := range words {
			require.Contains(t, e.Words(), want)
		}
	}
	said("is QUEUED", "a worker with a free slot claims it")
	job, _ := w.Claim(a.Task.ID)
	said("is RUNNING", "p1 holds it until")
	w.Advance(time.Minute)
	said("but its lease expired at")
	held := taskstate.HeldTask{TaskID: a.Task.ID, Fence: job.Token.Fence, Owner: job.Task.LeaseOwner}
	_, err := w.Store.Apply(t.Context(), taskstate.Batch{
		IDs: []string{a.Task.ID}, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Abandon(m, t, held) }),
	})
	require.NoError(t, err)
	said("is RUNNING", "its process has given it up")
	_, err = w.Finish(t.Context(), job, taskrun.Result{Err: ingest.Transient(ingest.CodeVector, "index: connection refused")})
	require.NoError(t, err)
	said("is RETRYING", "1 of 3 attempts failed", "connection refused", "attempt 2 of 3 starts")
	_, err = w.App.Cancel(t.Context(), w.Caller, a.Task.ID)
	require.NoError(t, err)
	said("is CANCELLED", "nothing until somebody retries it")
	_, err = r.Explain.Explain(t.Context(), ingesttest.Foreign(), a.Task.ID)
	require.ErrorIs(t, err, taskstate.ErrNotFound)
}

// places is a queue that has each delivery at one place, or does not reply.
type places struct {
	ingestq.Publisher
	place *ingestq.Place
	err   error
	asked []string
}

func (p *places) Locate(ctx context.Context, id string) (*ingestq.Place, error) {
	p.asked = append(p.asked, id)
	if p.err != nil {
		<-ctx.Done() // a queue that is away
	}
	return p.place, p.err
}

// A task that was claimed says who has its delivery. A queue that is away costs an explanation a moment, and nothing is asked of a task
// that has ended.
func TestExplainTellsWhoHasTheDelivery(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	queue := &places{place: &ingestq.Place{Stream: "stream:ingest:tasks", Consumer: "worker-1", Idle: 90 * time.Second, Deliveries: 2}}
	reads := tasks.NewExplainer(w.Store, nil, queue, ingest.Descriptions())
	id := w.Upload("one").Task.ID
	explain := func() ingest.Explanation {
		t.Helper()
		e, err := reads.Explain(t.Context(), w.Caller, id)
		require.NoError(t, err)
		return e
	}
	require.Nil(t, explain().Place, "no claim came by a delivery yet")
	w.Claim(id)
	require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_state SET delivery = '1-1'")
		return err
	}))
	e := explain()
	require.Equal(t, queue.place, e.Place)
	require.Contains(t, e.Words(), "worker-1 was given that delivery 1m30s ago and has not acknowledged it (given 2 times).")
	queue.place.Consumer = ""
	require.Contains(t, explain().Words(), "Nobody holds that delivery.")
	queue.place, queue.err = nil, ingestq.ErrUnavailable
	require.Nil(t, explain().Place)
	_, err := w.App.Cancel(t.Context(), w.Caller, id)
	require.NoError(t, err)
	asked := len(queue.asked)
	require.Nil(t, explain().Place)
	require.Len(t, queue.asked, asked, "it has ended")
	for _, id := range queue.asked {
		require.Equal(t, "1-1", id)
	}
}
