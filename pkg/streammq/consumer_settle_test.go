package streammq

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// reconciling is a consumer with a policy of two attempts and a short delay.
func (r *rig) settling(q *MQ, change func(*ConsumerConfig)) *polling {
	r.t.Helper()
	return r.consumer(q, func(c *ConsumerConfig) {
		c.Retry = RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond, MaxBackoff: time.Millisecond}
		c.MoverEvery = 20 * time.Millisecond
		if change != nil {
			change(c)
		}
	})
}

// count requires that a call settled n deliveries.
func (r *rig) count(n int) func(got int, err error) {
	r.t.Helper()
	return func(got int, err error) {
		r.t.Helper()
		require.NoError(r.t, err)
		require.Equal(r.t, n, got)
	}
}

// letters are the dead letters of the rig's topic, by payload.
func (r *rig) letters(q *MQ) map[string]Letter {
	r.t.Helper()
	list, err := q.Letters(r.topic).List(context.Background(), LetterQuery{Partition: -1})
	require.NoError(r.t, err)
	byPayload := map[string]Letter{}
	for _, l := range list {
		byPayload[string(l.Payload)] = l
	}
	require.Len(r.t, byPayload, len(list))
	return byPayload
}

func TestPolledMessagesAreSettledByThePolicies(t *testing.T) {
	for _, mode := range []RetryMode{RetryRepublish, RetryInPlace} {
		t.Run(string(mode), func(t *testing.T) {
			onBothLayouts(t, func(r *rig) {
				q, ctx := r.mq(nil), context.Background()
				_, err := q.CreateTopic(ctx, Topic{Name: r.topic, Partitions: 1, Status: true})
				require.NoError(r.t, err)
				r.numbered(q, 0, 7)
				c := r.settling(q, func(c *ConsumerConfig) { c.RetryMode = mode })
				got := c.poll(7)
				r.count(1)(c.Ack(ctx, got[0]))
				r.count(2)(c.Nack(ctx, 0, got[1], got[2]))
				r.count(1)(c.Retry(ctx, errBoom, got[3]))
				r.count(1)(c.Reject(ctx, errBoom, got[4]))
				require.NoError(r.t, got[5].Ack(ctx))
				require.NoError(r.t, got[6].Reject(ctx, errors.New("mine")))
				require.Contains(r.t, r.status(q, got[4].UUID).Error.Message, errBoom.Error())

				again := c.poll(3)
				byPayload := map[string]*Delivery{}
				for _, d := range again {
					require.Equal(r.t, 2, d.Attempt, string(d.Payload))
					byPayload[string(d.Payload)] = d
				}
				r.count(1)(c.Nack(ctx, time.Hour, byPayload["1"])) // its attempts are used up
				r.count(1)(c.Retry(ctx, errBoom, byPayload["2"]))
				r.count(1)(c.Ack(ctx, byPayload["3"]))
				c.nothing()
				require.Zero(r.t, r.pending(0, "g"))
				letters := r.letters(q)
				for payload, want := range map[string]string{"1": model.ErrNacked.Error(), "2": errBoom.Error(), "4": errBoom.Error(), "6": "mine"} {
					require.Contains(r.t, letters[payload].Error, want, payload)
				}
				require.Len(r.t, letters, 4)
				require.Equal(r.t, 2, letters["1"].Attempts)
				require.Equal(r.t, StateCompleted, r.state(q, got[3].UUID))
			})
		})
	}
}

// What was settled once stays so, whatever is called after it.
func TestAPolledMessageIsSettledOnce(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), context.Background()
		r.topicOf(q, 1)
		r.numbered(q, 0, 3)
		c := r.settling(q, func(c *ConsumerConfig) { c.RetryMode, c.DeadLetters = RetryInPlace, DeadLetterDrop })
		got := c.poll(3)
		r.count(1)(c.Nack(ctx, time.Hour, got[0]))
		r.count(1)(c.Ack(ctx, got[0], got[1])) // the first waits for its time
		r.count(1)(c.Reject(ctx, errBoom, got...))
		r.count(0)(c.Retry(ctx, errBoom, got...))
		require.ErrorIs(r.t, got[0].Ack(ctx), ErrSettled)
		require.Empty(r.t, r.letters(q), "the policy keeps none")
		require.Equal(r.t, 1, r.seen.count(EventDropped))
		require.Equal(r.t, 1, r.pending(0, "g"))
	})
}

// What another has by now is refused, as an acknowledgement is, and stays as it is.
func TestWhatIsNotHeldIsNotSettled(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), context.Background()
		r.topicOf(q, 1)
		r.numbered(q, 0, 3)
		old := r.settling(q, nil)
		held := old.poll(3)
		old.Yield()
		next := r.settling(q, nil)
		again := next.poll(3)
		require.ErrorIs(r.t, held[0].Nack(ctx, 0), ErrNotHeld)
		r.count(0)(old.Nack(ctx, 0, held[0]))
		r.count(0)(old.Retry(ctx, errBoom, held[1]))
		r.count(0)(old.Reject(ctx, errBoom, held[2]))
		require.Empty(r.t, r.letters(q))
		require.Zero(r.t, r.number("ZCARD", r.source(0).Retry()))
		require.Equal(r.t, 3, r.pending(0, "g"))
		r.count(3)(next.Ack(ctx, again...))
	})
}

// There is no message to run again in an entry that cannot be read: it is kept as it is.
func TestAMalformedEntryIsNeverPutOff(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), context.Background()
		r.topicOf(q, 1)
		r.do("XADD", r.source(0).Stream(), "*", "hello", "world")
		c := r.settling(q, nil)
		r.count(1)(c.Nack(ctx, 0, c.poll(1)...))
		list, err := q.Letters(r.topic).List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, list, 1)
		require.Equal(r.t, map[string]string{"hello": "world"}, list[0].Raw)
		require.Contains(r.t, list[0].Error, "malformed")
		require.Zero(r.t, r.pending(0, "g"))
	})
}

// A call that failed may be repeated.
func TestSettlingIsRepeatedAfterAFailure(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), context.Background()
		r.topicOf(q, 1)
		r.numbered(q, 0, 4)
		c := r.settling(q, nil)
		got := c.poll(4)
		over, cancel := context.WithCancel(ctx)
		cancel()
		for i, settle := range []func(context.Context) (int, error){
			func(ctx context.Context) (int, error) { return c.Ack(ctx, got[0]) },
			func(ctx context.Context) (int, error) { return c.Nack(ctx, time.Hour, got[1]) },
			func(ctx context.Context) (int, error) { return c.Retry(ctx, errBoom, got[2]) },
			func(ctx context.Context) (int, error) { return c.Reject(ctx, errBoom, got[3]) },
		} {
			n, err := settle(over)
			require.ErrorIs(r.t, err, context.Canceled, i)
			require.Zero(r.t, n)
			r.count(1)(settle(ctx))
		}
	})
}
