package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

var _ taskrun.Outbox = (*outbox.Reader)(nil)

// set writes columns of an event, as a relay would.
func (b *bench) set(seq int64, assignments string, args ...any) {
	b.t.Helper()
	b.inTx(func(ctx context.Context, tx taskstate.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE outbox_event SET "+assignments+" WHERE seq = ?", append(args, seq)...)
		return err
	})
}

// inTx commits f.
func (b *bench) inTx(f func(ctx context.Context, tx taskstate.Tx) error) {
	b.t.Helper()
	require.NoError(b.t, b.InTx(b.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error { return f(ctx, tx) }))
}

// now is the database's clock.
func (b *bench) now() time.Time {
	b.t.Helper()
	m, err := b.Moment(b.t.Context())
	require.NoError(b.t, err)
	return m.Now
}

func TestTrailsTellWhatBecameOfDeliveries(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, b *bench) {
		tasks := map[string]string{}
		renew := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Renew(b.p, m, t) }
		for _, name := range []string{"new", "retrying", "sent", "sent and waiting", "dead", "dead and sent", "other topic"} {
			tasks[name] = b.submit(newTask())[0].ID
			b.one(tasks[name], renew) // so each has two events
		}
		seq := func(name string, n int) int64 { return b.events(tasks[name])[n].Seq }
		early, late := b.now().Add(-time.Minute), b.now()
		const sent, dead = "status = 'SENT', sent_at = ?", "status = 'DEAD', cause = 'REFUSED', last_error = 'x'"
		b.set(seq("retrying", 0), "status = 'RETRYING', next_retry_at = ?", late)
		b.set(seq("retrying", 1), sent, early)
		b.set(seq("sent", 0), sent, early)
		b.set(seq("sent", 1), sent, late)
		b.set(seq("sent and waiting", 0), sent, early)
		b.set(seq("dead", 0), sent, early)
		b.set(seq("dead", 1), dead)
		b.set(seq("dead and sent", 0), dead)
		b.set(seq("dead and sent", 1), sent, late)
		b.set(seq("other topic", 0), "topic = 'other'")
		b.set(seq("other topic", 1), "topic = ?", outbox.DLQTopic(topic))

		var ids []string
		for _, id := range tasks {
			ids = append(ids, id)
		}
		ids = append(ids, "unknown")
		var got map[string]taskstate.EventTrail
		b.inTx(func(ctx context.Context, tx taskstate.Tx) (err error) {
			got, err = outbox.NewReader(b, topic).Trails(ctx, tx, ids)
			return err
		})
		require.Equal(t, map[string]taskstate.EventTrail{
			tasks["new"]:              {Waiting: true},
			tasks["retrying"]:         {Waiting: true, LastSent: seq("retrying", 1), SentAt: early},
			tasks["sent"]:             {LastSent: seq("sent", 1), SentAt: late},
			tasks["sent and waiting"]: {Waiting: true, LastSent: seq("sent and waiting", 0), SentAt: early},
			tasks["dead"]:             {LastSent: seq("dead", 0), SentAt: early, LastDead: seq("dead", 1)},
			tasks["dead and sent"]:    {LastSent: seq("dead and sent", 1), SentAt: late, LastDead: seq("dead and sent", 0)},
		}, got)
	})
}

func TestUnsentDeadLettersAreTakenFromTheOutbox(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, b *bench) {
		reader := outbox.NewReader(b, topic)
		names := []string{"new", "retrying", "dead", "sent", "leased", "lease over"}
		deadLetters := map[string]int64{}
		for _, name := range names {
			task := newTask()
			task.MaxAttempts = 1
			id := b.submit(task)[0].ID
			b.one(id, b.claim)
			b.one(id, b.fail)
			es := b.events(id)
			require.Equal(t, outbox.DLQTopic(topic), es[1].Topic)
			deadLetters[name] = es[1].Seq
		}
		past, future := b.now().Add(-time.Second), b.now().Add(time.Hour)
		b.set(deadLetters["retrying"], "status = 'RETRYING', next_retry_at = ?, wake_at = ?", future, future)
		b.set(deadLetters["dead"], "status = 'DEAD', cause = 'REFUSED', last_error = 'x', wake_at = ?", future)
		b.set(deadLetters["sent"], "status = 'SENT', sent_at = ?", past)
		b.set(deadLetters["leased"], "lease = 'somebody', wake_at = ?", future)
		b.set(deadLetters["lease over"], "lease = 'nobody', wake_at = ?", past)
		free := []int64{deadLetters["new"], deadLetters["retrying"], deadLetters["dead"], deadLetters["lease over"]}

		found, err := reader.UnsentDeadLetters(t.Context(), 100)
		require.NoError(t, err)
		var seqs []int64
		for _, l := range found {
			seqs = append(seqs, l.Seq)
			require.Equal(t, int64(1), l.Fence)
		}
		require.ElementsMatch(t, free, seqs)
		few, err := reader.UnsentDeadLetters(t.Context(), 2)
		require.NoError(t, err)
		require.Len(t, few, 2)

		all := []int64{-7}
		for _, seq := range deadLetters {
			all = append(all, seq)
		}
		b.inTx(func(ctx context.Context, tx taskstate.Tx) error {
			locked, err := reader.LockDeadLetters(ctx, tx, all)
			if err != nil {
				return err
			}
			require.Len(t, locked, len(free))
			for _, seq := range free {
				require.True(t, locked[seq])
			}
			n, err := reader.DropDeadLetters(ctx, tx, all)
			if err == nil && n != len(free) {
				err = fmt.Errorf("dropped %d", n)
			}
			return err
		})
		found, err = reader.UnsentDeadLetters(t.Context(), 100)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Len(t, b.events(""), 2*len(names)-len(free), "the deliveries, the sent letter and the leased one are left")
	})
}
