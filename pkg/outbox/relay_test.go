package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
)

func TestRelaySendsEveryEventOnce(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		b := newBroker()
		ids := w.insert(many(730)...)
		reg := prometheus.NewRegistry()
		stop := w.start(b, func(_ *outbox.Config, d *outbox.Deps) { d.Metrics = reg })
		ids = append(ids, w.insert(many(50)...)...)
		eventually(t, "all sent", func() bool { return w.count(outbox.StatusSent) == len(ids) })
		stop()
		for _, id := range ids {
			require.Equal(t, 1, b.times(id), id)
		}
		one := w.get(ids[0])
		require.False(t, one.SentAt.Before(one.CreatedAt))
		require.Equal(t, one.SentAt, one.WakeAt)
		require.Empty(t, one.LastError)
		want := fmt.Sprintf(`
# HELP outbox_publish_total Attempts to send an event, by result; the last of an event that is given up is dead.
# TYPE outbox_publish_total counter
outbox_publish_total{result="dead"} 0
outbox_publish_total{result="failure"} 0
outbox_publish_total{result="success"} %d
# HELP outbox_backlog Events that wait to be sent (NEW and RETRYING), counted up to a million each.
# TYPE outbox_backlog gauge
outbox_backlog 0
`, len(ids))
		eventually(t, "figures", func() bool { // a scrape that takes longer than 2 s shows no backlog
			return testutil.GatherAndCompare(reg, strings.NewReader(want), "outbox_publish_total", "outbox_backlog") == nil
		})
		require.Equal(t, len(ids), int(sampleCount(t, reg, "outbox_publish_delay_seconds")))
	})
}

// What is sent to the topic of dead letters is a dead letter really written (contract §8); what is not taken is none.
func TestSentDeadLettersAreCounted(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		b, reg := newBroker(), prometheus.NewRegistry()
		stop := w.start(b, func(_ *outbox.Config, d *outbox.Deps) { d.Metrics, d.DeadLetters = reg, outbox.DLQTopic(topic) })
		w.insert(event{}, event{topic: outbox.DLQTopic(topic)}, event{topic: outbox.DLQTopic(topic)})
		eventually(t, "all sent", func() bool { return w.count(outbox.StatusSent) == 3 })
		stop()
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP ingest_task_dlq_total Dead letters written to the dead letter stream or topic.
# TYPE ingest_task_dlq_total counter
ingest_task_dlq_total 2
`), "ingest_task_dlq_total"))
	})
}

// sampleCount is how many observations a histogram has.
func sampleCount(t *testing.T, reg *prometheus.Registry, name string) uint64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// One task's events stay in the order in which they were made, as long as each is sent at its first attempt.
func TestTwoRelaysAndConcurrentWriters(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		b := newBroker()
		b.delay = time.Millisecond
		for range 2 {
			w.start(b, func(c *outbox.Config, _ *outbox.Deps) { c.Interval = 10 * time.Millisecond })
		}
		const writers, rounds = 8, 25
		var mu sync.Mutex
		var all []string
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range rounds {
					ids, err := w.tryInsert(t.Context(), many(2)...)
					mu.Lock()
					all = append(all, ids...)
					mu.Unlock()
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		eventually(t, "all sent", func() bool { return w.count(outbox.StatusSent) == writers*rounds*2 })
		for _, id := range all {
			require.Equal(t, 1, b.times(id), id)
		}
	})
}

func TestDeadBrokerIsTriedByTheFormula(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		b := newBroker()
		b.set(fmt.Errorf("dial kafka:9092 for u:secret@: %w", errDown))
		reg := prometheus.NewRegistry()
		w.start(b, func(c *outbox.Config, d *outbox.Deps) {
			c.MaxAttempts, c.BaseBackoff, c.MaxBackoff, c.ProbeEvery = 4, time.Hour, 3*time.Hour, forever
			d.Metrics = reg
		})
		before := w.now()
		id := w.insert(many(1)...)[0]
		for attempt, wait := range []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour} {
			eventually(t, "attempt failed", func() bool { return w.get(id).AttemptCount == attempt+1 })
			e, after := w.get(id), w.now()
			require.Equal(t, outbox.StatusRetrying, e.Status)
			require.Equal(t, outbox.CauseUnavailable, e.Cause)
			require.Contains(t, e.LastError, "connection refused")
			require.False(t, e.NextRetryAt.Before(before.Add(wait)), "not sooner than the formula")
			require.False(t, e.NextRetryAt.After(after.Add(wait)), "not later than the formula")
			require.Equal(t, e.NextRetryAt, e.WakeAt)
			before = w.now()
			w.exec("UPDATE outbox_event SET next_retry_at = ?, wake_at = ? WHERE id = ?", before, before, id)
		}
		eventually(t, "dead", func() bool { return w.get(id).Status == outbox.StatusDead })
		e := w.get(id)
		require.Equal(t, 4, e.AttemptCount)
		require.Zero(t, e.NextRetryAt)
		require.Equal(t, outbox.CauseUnavailable, e.Cause)
		counted := func() error { // after the commit that the reader above has seen
			return testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP outbox_publish_total Attempts to send an event, by result; the last of an event that is given up is dead.
# TYPE outbox_publish_total counter
outbox_publish_total{result="dead"} 1
outbox_publish_total{result="failure"} 3
outbox_publish_total{result="success"} 0
`), "outbox_publish_total")
		}
		eventually(t, "each attempt is counted once", func() bool { return counted() == nil })
	})
}

func TestRevivalByTwoRelays(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		b := newBroker()
		b.set(errDown)
		tooLarge := "large"
		b.fail = func(e outbox.Event) error {
			if e.Key == tooLarge {
				return &outbox.RefusedError{Err: errors.New("message too large")}
			}
			return nil
		}
		quick := func(c *outbox.Config, _ *outbox.Deps) {
			c.MaxAttempts, c.BaseBackoff, c.ProbeEvery = 2, 0, 20*time.Millisecond
		}
		for range 2 {
			w.start(b, quick)
		}
		ids := w.insert(many(1203)...)
		eventually(t, "all died", func() bool { return w.count(outbox.StatusDead) == len(ids) })
		require.Equal(t, outbox.CauseUnavailable, w.get(ids[0]).Cause)
		b.set(nil)
		refused := w.insert(event{key: tooLarge})[0]
		eventually(t, "all sent", func() bool { return w.count(outbox.StatusSent) == len(ids) })
		eventually(t, "refused", func() bool { return w.get(refused).Status == outbox.StatusDead })
		for _, id := range ids {
			require.Equal(t, 1, b.times(id), id)
		}
		e := w.get(refused)
		require.Equal(t, outbox.CauseRefused, e.Cause)
		require.Equal(t, 1, e.AttemptCount, "at once")
		b.mu.Lock() // a send waits meanwhile
		b.fail = nil
		late := w.insert(many(1)...)[0] // dies by another relay's hand while the broker answers: no change from down to up
		eventually(t, "it is leased", func() bool {
			return w.number("SELECT COUNT(*) FROM outbox_event WHERE id = ? AND lease <> ''", late) == 1
		})
		w.exec(`UPDATE outbox_event SET status = 'DEAD', attempt_count = 9, cause = 'BROKER_UNAVAILABLE', last_error = 'x', lease = '', wake_at = created_at
WHERE id = ?`, late)
		b.mu.Unlock()
		eventually(t, "revived all the same", func() bool { return w.get(late).Status == outbox.StatusSent })
		require.Equal(t, outbox.StatusDead, w.get(refused).Status, "the refused wait for an operator")
		require.NoError(t, w.store.Requeue(t.Context(), refused, nil))
		eventually(t, "requeued", func() bool { return w.get(refused).Status == outbox.StatusSent })
	})
}

func TestReviveEmptiesTheFields(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		id := w.insert(many(1)...)[0]
		a := w.lease("a", 1, forever)
		mark := outbox.Mark{Seq: a[0].Seq, Token: "a", To: outbox.StatusDead, Cause: outbox.CauseUnavailable, Attempt: 10, Error: "refused"}
		_, err := w.store.Turn(t.Context(), outbox.Turn{Marks: []outbox.Mark{mark}})
		require.NoError(t, err)
		dead, err := w.store.Revivable(t.Context())
		require.NoError(t, err)
		require.True(t, dead)
		n, err := w.store.Revive(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		e := w.get(id)
		require.Equal(t, outbox.StatusNew, e.Status)
		require.Equal(t, outbox.CauseNone, e.Cause)
		require.Zero(t, e.AttemptCount)
		require.Zero(t, e.NextRetryAt)
		require.Empty(t, e.LastError)
		dead, err = w.store.Revivable(t.Context())
		require.NoError(t, err)
		require.False(t, dead)
	})
}

func TestSignalWakesTheRelay(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		b, signal := newBroker(), outbox.NewSignal()
		w.start(b, func(c *outbox.Config, d *outbox.Deps) { c.Interval, d.Signal = forever, signal })
		// Whether it looked already or not, it sleeps for long by the time that some of these were found.
		for n := 1; n <= 12; n++ {
			w.insert(many(1)...)
			signal.Ring()
			eventually(t, "sent", func() bool { return w.count(outbox.StatusSent) == n })
		}
	})
}

// hanging is a broker that takes events and never answers until it is told to stop.
type hanging struct {
	*broker
	sends atomic.Int32
}

func (h *hanging) Send(ctx context.Context, events []outbox.Event) []outbox.Result {
	h.sends.Add(1)
	<-ctx.Done()
	out := make([]outbox.Result, len(events))
	for i, e := range events {
		out[i] = outbox.Result{Seq: e.Seq, Err: ctx.Err()}
	}
	return out
}

func TestStopDoesNotWaitForABrokerThatHangs(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.insert(many(1000)...)
		h := &hanging{broker: newBroker()}
		stop := w.start(h, func(c *outbox.Config, _ *outbox.Deps) {
			c.BatchSize, c.StopGrace, c.BaseBackoff, c.MaxBackoff = 5, 50*time.Millisecond, forever, forever
			c.MarkTime = forever // a stalled database
		})
		eventually(t, "it sends", func() bool { return h.sends.Load() >= 20 })
		stop()
		require.Zero(t, w.count(outbox.StatusSent))
		sent := int(h.sends.Load()) * 5
		require.LessOrEqual(t, sent, 2*2*100, "what a lane may have under way")
		require.Equal(t, sent, w.count(outbox.StatusRetrying), "each is written down")
	})
}
