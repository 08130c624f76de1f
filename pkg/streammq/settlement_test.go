package streammq

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// promising hands its deliveries out and answers that they will be settled.
func promising(deliveries chan<- *Delivery) Handler {
	return func(_ context.Context, d *Delivery) Result {
		deliveries <- d
		return Settled()
	}
}

func TestHandlersSettleByThemselves(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		_, err := q.CreateTopic(r.t.Context(), Topic{Name: r.topic, Partitions: 1, Status: true})
		require.NoError(r.t, err)
		receipts := r.publish(q, "k", "ack", "k", "nack", "k", "reject")
		out := make(chan *Delivery, 10)
		r.subscribe(q, promising(out), nil)
		ack, nack, reject := <-out, <-out, <-out

		// In any order, from any goroutine, once.
		require.NoError(r.t, reject.Reject(r.t.Context(), errBoom))
		require.NoError(r.t, nack.Nack(r.t.Context(), time.Millisecond))
		done := make(chan error)
		go func() { done <- ack.Ack(r.t.Context()) }()
		require.NoError(r.t, <-done)
		for _, d := range []*Delivery{ack, nack, reject} {
			require.ErrorIs(r.t, d.Ack(r.t.Context()), ErrSettled)
			require.ErrorIs(r.t, d.Nack(r.t.Context(), 0), ErrSettled)
		}
		again := <-out
		require.Equal(r.t, "nack", string(again.Payload))
		require.Equal(r.t, 2, again.Attempt)
		require.NoError(r.t, again.Ack(r.t.Context()))
		require.Zero(r.t, r.pending(0, "g"))
		letters, err := q.Letters(r.topic).List(r.t.Context(), LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, letters, 1)
		require.Equal(r.t, "reject", string(letters[0].Payload))
		states, err := q.Statuses(r.t.Context(), receipts[0].UUID, receipts[1].UUID, receipts[2].UUID)
		require.NoError(r.t, err)
		require.Equal(r.t, StateCompleted, states[receipts[0].UUID].State)
		require.Equal(r.t, StateCompleted, states[receipts[1].UUID].State)
		require.Equal(r.t, StateFailed, states[receipts[2].UUID].State)
	})
}

// Who has settled inside the handler may answer what it likes: the first word counts.
func TestSettledInsideTheHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	r.publish(q, "k", "0", "k", "1", "k", "2")
	errs := make(chan error, 3)
	r.subscribe(q, func(ctx context.Context, d *Delivery) Result {
		seen.add(d)
		errs <- d.Ack(ctx)
		switch string(d.Payload) {
		case "0":
			return Retry(errBoom)
		case "1":
			panic("after the acknowledgement")
		}
		return Success()
	}, nil)
	for range 3 {
		require.NoError(t, <-errs)
	}
	eventually(t, func() bool { return r.seen.count(EventHandled) == 3 && r.pending(0, "g") == 0 }, "all")
	r.told(EventAcked, 3)
	require.Zero(t, r.seen.count(EventRetried)+r.seen.count(EventDead))
	require.ErrorIs(t, new(Delivery).Ack(t.Context()), ErrNotHeld, "of no handler")
}

// A promise under a lease that was lost is refused, and the message is delivered again.
func TestSettlingIsFenced(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		r.publish(q, "k", "0")
		out := make(chan *Delivery, 10)
		r.subscribe(q, promising(out), nil)
		old := <-out
		r.do("SET", r.source(0).Epoch("g"), "1")
		require.ErrorIs(r.t, old.Ack(r.t.Context()), ErrNotHeld)
		require.Equal(r.t, 1, r.pending(0, "g"))
		again := <-out
		require.EqualValues(r.t, 2, again.Deliveries)
		require.Error(r.t, old.Reject(r.t.Context(), errBoom))
		require.NoError(r.t, again.Ack(r.t.Context()))
		require.Zero(r.t, r.pending(0, "g"))
	})
}

// What is not settled when the subscriber stops is the next owner's.
func TestPromisesAreHandedBackAtClose(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		r.publish(q, "k", "0", "k", "1")
		out := make(chan *Delivery, 10)
		first := r.subscribe(q, promising(out), nil)
		kept, broken := <-out, <-out
		require.NoError(r.t, kept.Ack(r.t.Context()))
		first.end()
		require.ErrorIs(r.t, broken.Ack(r.t.Context()), ErrNotHeld)
		require.Zero(r.t, r.number("EXISTS", r.source(0).Lease("g")), "no lease to wait for")
		r.subscribe(q, promising(out), nil)
		again := <-out
		require.Equal(r.t, "1", string(again.Payload))
		require.EqualValues(r.t, 2, again.Deliveries)
		require.NoError(r.t, again.Ack(r.t.Context()))
	})
}

// A promise keeps its place among the running handlers, and at most a batch of promises is open in a partition.
func TestPromisesAreBounded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*SubscriberConfig){
		"in flight": func(c *SubscriberConfig) { c.MaxInFlight = 2 },
		"batch":     func(c *SubscriberConfig) { c.Batch = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, LayoutSingle)
			q := r.mq(nil)
			r.topicOf(q, 1)
			r.publish(q, "", "0", "", "1", "", "2", "", "3")
			out := make(chan *Delivery, 10)
			r.subscribe(q, promising(out), change)
			first, second := <-out, <-out
			require.Never(t, func() bool { return len(out) > 0 }, 200*time.Millisecond, 20*time.Millisecond)
			require.NoError(t, first.Ack(t.Context()))
			third := <-out
			require.Equal(t, "2", string(third.Payload))
			require.NoError(t, second.Ack(t.Context()))
			require.NoError(t, third.Ack(t.Context()))
			require.NoError(t, (<-out).Ack(t.Context()))
			eventually(t, func() bool { return r.pending(0, "g") == 0 }, "all")
		})
	}
}

// A promised entry of a single stream is not taken for forgotten.
func TestPromisesOnAStreamAreNotClaimed(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.addSingle("0")
	out := make(chan *Delivery, 1)
	r.single(q, "slow", RoleMain, promising(out), touched)
	d := <-out
	r.single(q, "eager", RoleClaim, seen.handler(succeed), touched)
	require.Never(t, func() bool { return len(seen.all()) > 0 }, touchedIdle+time.Second, 20*time.Millisecond, "longer than the idle time")
	require.NoError(t, d.Ack(t.Context()))
	require.Zero(t, r.pendingOf(r.topic+"-tasks", "workers"))
}

// A call whose answer did not come may be repeated; several at once settle once.
func TestSettlingCanBeRepeatedUntilItIsKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 1)
	r.publish(q, "k", "0")
	out := make(chan *Delivery, 1)
	r.subscribe(q, promising(out), nil)
	d := <-out
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.Ack(ended), context.Canceled)
	var wg sync.WaitGroup
	results := make(chan error, 8)
	for range 8 {
		wg.Go(func() { results <- d.Ack(t.Context()) })
	}
	wg.Wait()
	close(results)
	settled := 0
	for err := range results {
		if err == nil {
			settled++
		} else {
			require.True(t, errors.Is(err, ErrSettled), err)
		}
	}
	require.Equal(t, 1, settled)
	require.Zero(t, r.pending(0, "g"))
}

// A write that is refused or fails is told with what it was to be.
func TestRefusedAndFailedWritesAreToldApart(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 1)
		r.publish(q, "k", "0", "k", "1", "k", "2", "k", "3")
		c := r.settling(q, func(c *ConsumerConfig) { c.Lease = waitLimit })
		got := c.poll(4)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		require.Error(r.t, got[0].Ack(ended))
		require.Error(r.t, got[1].Nack(ended, time.Hour))
		require.Error(r.t, got[2].Reject(ended, errBoom))
		_, err := c.Ack(ended, got[3])
		require.Error(r.t, err)
		r.do("INCR", r.source(0).Epoch("g"))
		require.ErrorIs(r.t, got[0].Ack(ctx), ErrNotHeld)
		require.ErrorIs(r.t, got[1].Nack(ctx, time.Hour), ErrNotHeld)
		require.ErrorIs(r.t, got[2].Reject(ctx, errBoom), ErrNotHeld)
		r.count(0)(c.Ack(ctx, got[3]))
		for _, kind := range []EventKind{EventFailed, EventRefused} {
			for of, n := range map[EventKind]int{EventAcked: 2, EventRetried: 1, EventDead: 1} {
				require.Equal(r.t, n, r.seen.countOf(kind, of), "%s %s", of, kind)
			}
		}
		require.Zero(r.t, r.seen.count(EventAcked)+r.seen.count(EventRetried)+r.seen.count(EventDead))
	})
}
