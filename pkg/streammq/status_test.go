package streammq

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

func (r *rig) statusTopic(q *MQ) {
	r.t.Helper()
	_, err := q.CreateTopic(context.Background(), Topic{Name: r.topic, Partitions: 1, Status: true})
	require.NoError(r.t, err)
}

func (r *rig) status(q *MQ, uuid string) Status {
	r.t.Helper()
	list, err := q.Statuses(context.Background(), uuid, "unknown")
	require.NoError(r.t, err)
	require.NotContains(r.t, list, "unknown")
	return list[uuid]
}

func TestStatusFollowsTheMessage(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.statusTopic(q)
		receipt := r.publish(r.mq(nil), "k", "p")[0] // another process reads the option in the meta
		require.Equal(r.t, StatePending, r.status(q, receipt.UUID).State)
		require.WithinDuration(r.t, time.Now(), r.status(q, receipt.UUID).UpdatedAt, time.Minute)
		require.Greater(r.t, r.number("TTL", core.StatusKey(receipt.UUID)), 71*3600)

		began, goOn := make(chan int, 1), make(chan Result)
		r.subscribe(q, func(_ context.Context, d *Delivery) Result {
			began <- d.Attempt
			result := <-goOn
			if result.Outcome == "" {
				panic("at the disco")
			}
			return result
		}, nil)
		<-began
		require.Equal(r.t, StateProcessing, r.status(q, receipt.UUID).State)
		goOn <- Result{}
		<-began // failed → processing
		s := r.status(q, receipt.UUID)
		require.Equal(r.t, StateProcessing, s.State)
		require.Nil(r.t, s.Error)
		goOn <- Fail(errBoom)
		eventually(r.t, func() bool { return r.status(q, receipt.UUID).State == StateFailed }, "failed")
		require.Equal(r.t, &StatusError{Type: "*errors.errorString", Message: "boom"}, r.status(q, receipt.UUID).Error)

		var list []Letter
		eventually(r.t, func() bool { // the status goes first
			var err error
			list, err = q.Letters(r.topic).List(r.t.Context(), LetterQuery{Partition: -1})
			return err == nil && len(list) == 1
		}, "a dead letter")
		_, err := q.Letters(r.topic).Replay(r.t.Context(), list[0])
		require.NoError(r.t, err)
		<-began
		goOn <- Success()
		eventually(r.t, func() bool { return r.status(q, receipt.UUID).State == StateCompleted }, "failed → completed by a replay")
	})
}

func TestPanicsStatusHasATraceback(t *testing.T) {
	t.Parallel()
	s := model.Describe(&PanicError{Value: "x", Stack: []byte("goroutine 1")})
	require.Equal(t, "goroutine 1", s.Traceback)
	require.Contains(t, s.Message, "handler panicked: x")
}

// A message that was completed, and whose acknowledgement was lost, is not run again.
func TestCompletedMessageIsAcknowledgedWithoutARun(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.statusTopic(q)
		r.publish(q, "k", "0", "k", "1")
		a := r.member(q, "a")
		parcels, err := a.Unpack(r.t.Context(), r.next(a).Entries)
		require.NoError(r.t, err)
		_, err = a.WriteStatus(r.t.Context(), &parcels[0], StateCompleted, nil)
		require.NoError(r.t, err)
		r.expire() // it dies before it acknowledges
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 1 && r.pending(0, "g") == 0 }, "both are acknowledged")
		require.Equal(r.t, []string{"1"}, seen.payloads())
		// Another group has not completed it, whatever the status says.
		other := &log{}
		r.subscribe(q, other.handler(succeed), func(c *SubscriberConfig) { c.Group = "other" })
		eventually(r.t, func() bool { return len(other.all()) == 2 }, "both run")
	})
}

// lateStatus: A is paused in its handler, B took over; what A writes then must change nothing.
func lateStatus(r *rig, q *MQ) string {
	r.statusTopic(q)
	uuid := r.publish(q, "k", "0")[0].UUID
	a := r.member(q, "a")
	mine, err := a.Unpack(context.Background(), r.next(a).Entries)
	require.NoError(r.t, err)
	r.expire()
	b := r.member(q, "b")
	got, err := b.Recover(context.Background(), 10, "")
	require.NoError(r.t, err)
	theirs, err := b.Unpack(context.Background(), got.Entries)
	require.NoError(r.t, err)
	write := func(m *fence.Reader, p *fence.Parcel, state State) bool {
		open, err := m.WriteStatus(context.Background(), p, state, nil)
		require.NoError(r.t, err)
		return open
	}
	write(a, &mine[0], StateProcessing)
	write(b, &theirs[0], StateProcessing)
	write(a, &mine[0], StateFailed)
	if r.status(q, uuid).State != StateProcessing {
		return "an old owner's status is kept"
	}
	return ""
}

// completedStays: a later delivery of what was completed does not set it back.
func completedStays(r *rig, q *MQ) string {
	r.statusTopic(q)
	uuid := r.publish(q, "k", "0")[0].UUID
	a := r.member(q, "a")
	parcels, err := a.Unpack(context.Background(), r.next(a).Entries)
	require.NoError(r.t, err)
	for _, state := range []State{StateCompleted, StateProcessing} {
		_, err = a.WriteStatus(context.Background(), &parcels[0], state, nil)
		require.NoError(r.t, err)
		parcels[0].Deliveries++
	}
	if r.status(q, uuid).State != StateCompleted {
		return "completed went back"
	}
	return ""
}
