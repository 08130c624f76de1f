package streammq

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

var errBoom = errors.New("boom")

func TestRetryPolicyDelays(t *testing.T) {
	t.Parallel()
	p := RetryPolicy{Backoff: time.Second, MaxBackoff: 10 * time.Second}
	for failed, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 8, 5: 10, 6: 10, math.MaxInt32: 10} {
		require.EqualValues(t, want, model.Delay(p, failed)/time.Second, failed)
	}
	for failed, want := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 4: 8} { // what is no failure counts as the first; the cap itself is reached
		require.EqualValues(t, want, model.Delay(RetryPolicy{Backoff: time.Second, MaxBackoff: 8 * time.Second}, failed)/time.Second, failed)
	}
	require.Zero(t, model.Delay(RetryPolicy{}, 3))
	require.Zero(t, model.Delay(RetryPolicy{MaxBackoff: time.Hour}, 3), "twice nothing")
	for _, failed := range []int{34, 35, 64, 65, model.MaxAttempts} { // with no cap to speak of, the delay grows and never turns into none
		p := RetryPolicy{Backoff: time.Second, MaxBackoff: math.MaxInt64}
		require.Greater(t, model.Delay(p, failed), 200*365*24*time.Hour, failed)
		for _, p.Jitter = range []Jitter{JitterEqual, JitterFull} {
			require.GreaterOrEqual(t, model.Delay(p, failed), time.Duration(0), failed)
		}
	}
	fixed := RetryPolicy{Backoff: time.Second, MaxBackoff: time.Second}
	require.Equal(t, time.Second, model.Delay(fixed, 7))
	for range 200 {
		p.Jitter = JitterEqual
		require.GreaterOrEqual(t, model.Delay(p, 2), time.Second)
		require.LessOrEqual(t, model.Delay(p, 2), 2*time.Second)
		p.Jitter = JitterFull
		require.GreaterOrEqual(t, model.Delay(p, 2), time.Duration(0))
		require.LessOrEqual(t, model.Delay(p, 2), 2*time.Second)
	}
	p.Delay = func(failed int) time.Duration { return time.Duration(failed-2) * time.Minute }
	require.Equal(t, time.Minute, model.Delay(p, 3))
	require.Zero(t, model.Delay(p, 1), "not below zero")
}

func TestAttemptsAreCountedByPolicyMessageOrDefault(t *testing.T) {
	t.Parallel()
	at := func(attempt, message int) *Delivery { return &Delivery{Attempt: attempt, MaxAttempts: message} }
	require.True(t, model.Exhausted(RetryPolicy{MaxAttempts: 2}, at(2, 9)))
	require.False(t, model.Exhausted(RetryPolicy{MaxAttempts: 2}, at(1, 1)))
	require.True(t, model.Exhausted(RetryPolicy{}, at(3, 3)))
	require.False(t, model.Exhausted(RetryPolicy{}, at(DefaultMaxAttempts-1, 0)))
	require.True(t, model.Exhausted(RetryPolicy{}, at(DefaultMaxAttempts, 0)))
}

// onBothModes runs a test with both retry modes on both layouts.
func onBothModes(t *testing.T, test func(r *rig, mode func(*SubscriberConfig))) {
	onBothLayouts(t, func(r *rig) {
		for _, mode := range []RetryMode{RetryRepublish, RetryInPlace} {
			one := r.another()
			test(one, func(c *SubscriberConfig) { c.RetryMode = mode })
		}
	})
}

func TestFailedMessageRunsAgainUntilItSucceeds(t *testing.T) {
	onBothModes(t, func(r *rig, mode func(*SubscriberConfig)) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 3)
		receipts := r.publish(q, "k", "p")
		r.subscribe(q, seen.handler(func(d *Delivery) Result {
			if d.Attempt < 3 {
				return Retry(errBoom)
			}
			return Success()
		}), mode)
		eventually(r.t, func() bool { return len(seen.all()) == 3 && r.pending(receipts[0].Partition, "g") == 0 }, "three runs")
		for i, d := range seen.all() {
			require.Equal(r.t, i+1, d.Attempt)
			require.Equal(r.t, receipts[0].UUID, d.UUID)
			require.Equal(r.t, receipts[0].Partition, d.Partition)
			require.Equal(r.t, receipts[0].ID, d.OriginalID)
			require.Equal(r.t, "k", d.Key)
			require.Equal(r.t, "p", string(d.Payload))
		}
		r.told(EventRetried, 2)
		s := r.source(receipts[0].Partition)
		require.Zero(r.t, r.number("EXISTS", s.Retry()))
		require.Zero(r.t, r.number("EXISTS", s.Due("g")))
		require.Zero(r.t, r.number("EXISTS", s.Attempts("g")))
	})
}

func TestUsedUpAttemptsBecomeADeadLetter(t *testing.T) {
	onBothModes(t, func(r *rig, mode func(*SubscriberConfig)) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 3)
		receipt, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{
			Key: "k", Payload: []byte("p"), Headers: map[string]string{"color": "red", HeaderForcePartition: "2"}, MaxAttempts: 3,
		})
		require.NoError(r.t, err)
		var well atomic.Bool
		r.subscribe(q, seen.handler(func(*Delivery) Result {
			if well.Load() {
				return Success()
			}
			return Retry(errBoom)
		}), mode)
		letters := q.Letters(r.topic)
		var list []Letter
		eventually(r.t, func() bool {
			list, err = letters.List(ctx, LetterQuery{Partition: -1})
			return err == nil && len(list) == 1
		}, "a dead letter")
		require.Len(r.t, seen.all(), 3)
		letter := list[0]
		require.WithinDuration(r.t, time.Now(), letter.FailedAt, time.Minute)
		require.Equal(r.t, "red", letter.Headers["color"])
		require.Equal(r.t, []any{r.topic, 2, receipt.ID, "g", "k", "p", 3, 3, "boom", ""}, []any{
			letter.Topic, letter.Partition, letter.OriginalID, letter.Group, letter.Key, string(letter.Payload),
			letter.Attempts, letter.MaxRetries, letter.Error, letter.Replayed,
		})
		got, err := letters.Get(ctx, 2, letter.ID)
		require.NoError(r.t, err)
		require.Equal(r.t, letter, got)

		well.Store(true)
		id, err := letters.Replay(ctx, letter)
		require.NoError(r.t, err)
		again, err := letters.Replay(ctx, letter)
		require.ErrorIs(r.t, err, ErrReplayed)
		require.Equal(r.t, id, again)
		eventually(r.t, func() bool { return len(seen.all()) == 4 }, "replayed")
		d := seen.all()[3]
		require.Equal(r.t, []any{2, 1, receipt.UUID, receipt.ID, id, "p"}, []any{d.Partition, d.Attempt, d.UUID, d.OriginalID, d.ID, string(d.Payload)})
		got, err = letters.Get(ctx, 2, letter.ID)
		require.NoError(r.t, err)
		require.Equal(r.t, id, got.Replayed)

		n, err := letters.Delete(ctx, 2, letter.ID)
		require.NoError(r.t, err)
		require.Equal(r.t, 1, n)
		_, err = letters.Get(ctx, 2, letter.ID)
		require.ErrorIs(r.t, err, ErrNotFound)
		_, err = letters.Replay(ctx, letter)
		require.ErrorIs(r.t, err, ErrNotFound)
		require.Zero(r.t, r.number("EXISTS", r.source(2).Replayed()))
	})
}

// A retry and a replay are for the group that failed: the others have done the message.
func TestRetriesOfOneGroupAreNotSeenByAnother(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, good, bad := r.mq(nil), &log{}, &log{}
		r.topicOf(q, 1)
		r.publish(q, "k", "p")
		r.subscribe(q, bad.handler(func(d *Delivery) Result {
			if d.Attempt < 3 {
				return Retry(errBoom)
			}
			return Success()
		}), nil)
		r.subscribe(q, good.handler(succeed), func(c *SubscriberConfig) { c.Group = "other" })
		eventually(r.t, func() bool {
			return len(bad.all()) == 3 && r.pending(0, "g") == 0 && r.pending(0, "other") == 0
		}, "three runs")
		eventually(r.t, func() bool { return r.seen.count(EventConsumed) == 6 }, "both groups have read all three entries")
		eventually(r.t, func() bool { return len(good.all()) > 0 && r.pending(0, "other") == 0 }, "what was read is handled too")
		require.Len(r.t, good.all(), 1)
	})
}

func TestOutcomes(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 1)
		results := map[string]Result{
			"fail": Fail(errBoom), "letter": DeadLetter(nil), "unknown": {Outcome: "?", Err: errBoom}, "now": RetryAfter(0, errBoom),
		}
		r.publish(q, "", "fail", "", "letter", "", "unknown", "", "now", "", "panic")
		r.subscribe(q, seen.handler(func(d *Delivery) Result {
			if string(d.Payload) == "panic" {
				panic("at the disco")
			}
			return results[string(d.Payload)]
		}), func(c *SubscriberConfig) { c.Retry.MaxAttempts = 2 })
		var list []Letter
		eventually(r.t, func() bool {
			var err error
			list, err = q.Letters(r.topic).List(ctx, LetterQuery{Partition: -1})
			return err == nil && len(list) == 5
		}, "five letters")
		attempts, reasons := map[string]int{}, map[string]string{}
		for _, l := range list {
			attempts[string(l.Payload)], reasons[string(l.Payload)] = l.Attempts, l.Error
		}
		require.Equal(r.t, map[string]int{"fail": 1, "letter": 1, "unknown": 1, "now": 2, "panic": 2}, attempts)
		require.Contains(r.t, reasons["panic"], "at the disco")
		require.Contains(r.t, reasons["unknown"], "unknown outcome")
		require.Equal(r.t, "boom", reasons["now"])
		eventually(r.t, func() bool { return r.pending(0, "g") == 0 }, "nothing is pending")
	})
}

func TestDroppedFailuresLeaveNoLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	r.publish(q, "", "fail", "", "letter")
	r.subscribe(q, seen.handler(func(d *Delivery) Result {
		if string(d.Payload) == "letter" {
			return DeadLetter(errBoom)
		}
		return Fail(errBoom)
	}), func(c *SubscriberConfig) { c.DeadLetters = DeadLetterDrop })
	eventually(t, func() bool { return len(seen.all()) == 2 && r.pending(0, "g") == 0 }, "both")
	require.Equal(t, 1, r.number("XLEN", r.source(0).Dlq()), "the one that asked for it")
	r.told(EventDropped, 1)
}

// What cannot be read becomes a dead letter byte by byte, and stops nobody.
func TestMalformedEntryBecomesALetterAsItIs(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 1)
		r.do("XADD", r.source(0).Stream(), "*", "color", "\xff\x00")
		r.do("XADD", r.source(0).Stream(), "*", "payloadRef", "gone")
		r.publish(q, "", "good")
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 1 && r.pending(0, "g") == 0 }, "the good one")
		list, err := q.Letters(r.topic).List(ctx, LetterQuery{Partition: 0})
		require.NoError(r.t, err)
		require.Len(r.t, list, 2)
		require.Equal(r.t, map[string]string{"color": "\xff\x00"}, list[0].Raw)
		require.Contains(r.t, list[0].Error, "malformed")
		require.Contains(r.t, list[1].Error, "was removed")
		_, err = q.Letters(r.topic).Replay(ctx, list[0])
		require.ErrorIs(r.t, err, ErrMalformed)
	})
}

// unanswered publishes a message with which three owners die.
func unanswered(r *rig, q *MQ) {
	r.publish(q, "", "poison")
	for range 3 {
		m := r.member(q, "dead")
		_, err := m.Recover(r.t.Context(), 10, "")
		require.NoError(r.t, err)
		r.next(m)
		r.expire()
	}
}

func TestEntryThatNobodyAnswersForIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	unanswered(r, q)
	r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.MaxUnanswered = 3 })
	eventually(t, func() bool { return r.number("XLEN", r.source(0).Dlq()) == 1 && r.pending(0, "g") == 0 }, "a dead letter")
	require.Empty(t, seen.all(), "it is not run")
}

func TestPolledEntryThatNobodyAnswersForIsGivenUp(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		_, err := q.CreateTopic(r.t.Context(), Topic{Name: r.topic, Partitions: 1, Status: true})
		require.NoError(r.t, err)
		unanswered(r, q)
		c := r.settling(q, func(c *ConsumerConfig) { c.MaxUnanswered = 3 })
		r.publish(q, "", "good")
		good := c.poll(1)
		require.Equal(r.t, "good", string(good[0].Payload), "the other is not handed out")
		r.count(1)(c.Ack(r.t.Context(), good...))
		poison := r.letters(q)["poison"]
		require.Contains(r.t, poison.Error, consume.ErrUnanswered.Error())
		require.Equal(r.t, StateFailed, r.state(q, poison.Headers[HeaderUUID]))
		require.Zero(r.t, r.pending(0, "g"))

		unanswered(r, q)
		c.end()
		mine := r.settling(q, func(c *ConsumerConfig) { c.MaxUnanswered = 0 })
		require.EqualValues(r.t, 4, mine.poll(1)[0].Deliveries, "who polls decides")
	})
}

// A large payload is not lost with its first entry when the message runs again.
func TestRetryAndLetterCarryALargePayload(t *testing.T) {
	onBothModes(t, func(r *rig, mode func(*SubscriberConfig)) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		large := strings.Repeat("x", DefaultInlineMax+1)
		r.publish(q, "k", large)
		r.subscribe(q, seen.handler(func(*Delivery) Result { return Retry(errBoom) }), func(c *SubscriberConfig) {
			mode(c)
			c.Retry.MaxAttempts = 2
		})
		var list []Letter
		eventually(r.t, func() bool {
			var err error
			list, err = q.Letters(r.topic).List(r.t.Context(), LetterQuery{Partition: -1})
			return err == nil && len(list) == 1
		}, "a dead letter")
		require.Equal(r.t, large, string(list[0].Payload))
		require.Equal(r.t, []string{large, large}, seen.payloads())
	})
}

func TestRetryIsPunctual(t *testing.T) {
	onBothModes(t, func(r *rig, mode func(*SubscriberConfig)) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		times := make(chan time.Time, 2)
		r.publish(q, "k", "p")
		r.subscribe(q, func(_ context.Context, d *Delivery) Result {
			times <- time.Now()
			if d.Attempt == 1 {
				return RetryAfter(400*time.Millisecond, errBoom)
			}
			return Success()
		}, func(c *SubscriberConfig) {
			mode(c)
			c.MoverEvery, c.Poll = time.Hour, time.Hour // the due time wakes, not the interval
		})
		first := <-times
		select {
		case second := <-times:
			require.GreaterOrEqual(r.t, second.Sub(first), 395*time.Millisecond, "not before it is due, by the server's clock")
		case <-time.After(waitLimit):
			r.t.Fatal("the due time woke nobody")
		}
	})
}

func TestMoverWakesForTheEarliest(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	r := newRig(t, LayoutSingle)
	q := r.mq(func(c *Config) { c.Now = func() time.Time { return now } })
	s, err := q.NewSubscriber(NewDefaultSubscriberConfig(r.topic, "g", (&log{}).handler(succeed)))
	require.NoError(t, err)
	for _, delay := range []time.Duration{time.Hour, time.Second, time.Minute} {
		consume.WakeMover(s, delay) // it is busy, and sees none of them yet
	}
	require.Equal(t, now.Add(time.Second), <-consume.Wakes(s))
}

// An idle server ends a block only when it looks at its clients, ten times a second: a command makes it look.
func TestRetryInPlaceDoesNotWaitForAnIdleServer(t *testing.T) {
	t.Parallel()
	r, _ := newPrivateRig(t)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	r.publish(q, "k", "p")
	r.subscribe(q, seen.handler(func(*Delivery) Result { return RetryAfter(50*time.Millisecond, errBoom) }), func(c *SubscriberConfig) {
		c.RetryMode, c.Retention, c.Poll, c.Retry.MaxAttempts = RetryInPlace, Retention{}, time.Minute, model.MaxAttempts
	})
	// A busy server may find the end of one block by itself, not of each.
	eventually(t, func() bool {
		return strings.Contains(r.text("INFO", "commandstats"), "cmdstat_xlen:")
	}, "the command that ends the block")
	eventually(t, func() bool { return len(seen.all()) > 1 }, "it runs again")
}

// Of several retries in place that are due at once, one whose data was removed costs the others nothing.
func TestRetriesInPlaceAreTakenTogether(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		a := r.member(q, "a")
		r.publish(q, "k", "0", "k", "1", "k", "2", "k", "3")
		got := r.next(a)
		for i, e := range got.Entries {
			done, err := a.RetryInPlace(r.t.Context(), of(e), i+1, 0)
			require.NoError(r.t, err)
			require.True(r.t, done)
		}
		r.do("XDEL", a.Src.Stream(), got.Entries[1].Id)
		r.do("XACK", a.Src.Stream(), "g", got.Entries[2].Id)
		again := r.next(a)
		require.Len(r.t, again.Entries, 2)
		require.Equal(r.t, 1, again.Lost)
		for i, n := range []int{0, 3} {
			require.Equal(r.t, got.Entries[n].Id, again.Entries[i].Id)
			require.Equal(r.t, got.Entries[n].Fields, again.Entries[i].Fields)
			require.EqualValues(r.t, 2, again.Entries[i].Deliveries)
			require.Equal(r.t, n+1, again.Entries[i].Attempts)
		}
		require.Zero(r.t, r.number("EXISTS", a.Src.Due("g")))
		require.Equal(r.t, 2, r.number("HLEN", a.Src.Attempts("g")))
		require.Equal(r.t, 2, r.pending(0, "g"))
	})
}

func TestMalformedRetryItemsArePutAside(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		s := r.source(0)
		r.subscribe(q, seen.handler(succeed), nil)
		r.do("HSET", s.Item("unknown"), "color", "red")
		r.do("HSET", s.Item("elsewhere"), "payload", "p", "partitionId", "99999")
		r.do("SET", s.Item("no-hash"), "x")
		r.do("HSET", s.Item("good"), "payload", "from elsewhere", "partitionId", "0", "retryCount", "1", "dueAt", "1")
		r.do("HSET", s.Item("no-numbers"), "topic", "", "payload", "lenient", "partitionId", "0", "retryCount", "abc", "maxRetries", "xyz", "headers", "none")
		r.do("ZADD", s.Retry(), "1", "unknown", "1", "elsewhere", "1", "no-hash", "1", "missing", "1", "good", "1", "no-numbers")
		eventually(r.t, func() bool { return len(seen.all()) == 2 && r.number("EXISTS", s.Retry()) == 0 }, "what can be read is moved")
		attempts := map[string][2]int{}
		for _, d := range seen.all() {
			attempts[string(d.Payload)] = [2]int{d.Attempt, d.MaxAttempts}
		}
		require.Equal(r.t, map[string][2]int{"from elsewhere": {2, 4}, "lenient": {1, 4}}, attempts, "a field that is no number has its default")
		require.Zero(r.t, r.number("EXISTS", s.Item("no-numbers")))
		require.Equal(r.t, 4, r.number("ZCARD", s.Quarantine()))
		r.told(EventQuarantined, 4)
		require.Equal(r.t, 1, r.number("EXISTS", s.Item("unknown")), "its data stays")
	})
}

func TestReplayOfManyIsResumableAndDry(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 4)
		var pairs []string
		for i := range 250 {
			pairs = append(pairs, "k"+strconv.Itoa(i), strconv.Itoa(i))
		}
		r.publish(q, pairs...)
		sick := r.subscribe(q, (&log{}).handler(func(*Delivery) Result { return DeadLetter(errBoom) }), nil)
		eventually(r.t, func() bool { return r.seen.count(EventDead) == 250 }, "all dead")
		sick.end()

		letters := q.Letters(r.topic)
		odd := LetterQuery{Partition: -1, Group: "g", Match: func(l *Letter) bool { return l.Payload[len(l.Payload)-1]%2 == 1 }}
		n, err := letters.ReplayAll(ctx, odd, 0, true)
		require.NoError(r.t, err)
		require.Equal(r.t, 125, n)
		limited := odd
		limited.Limit = 20
		n, err = letters.ReplayAll(ctx, limited, 0, false)
		require.NoError(r.t, err)
		require.Equal(r.t, 20, n)
		began := time.Now()
		limited.Limit = 5
		n, err = letters.ReplayAll(ctx, limited, 20, false)
		require.NoError(r.t, err)
		require.Equal(r.t, 5, n)
		require.GreaterOrEqual(r.t, time.Since(began), 240*time.Millisecond)
		n, err = letters.ReplayAll(ctx, odd, 0, false)
		require.NoError(r.t, err)
		require.Equal(r.t, 100, n, "what is left")

		seen := &log{}
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 125 }, "each once")
		one, err := letters.List(ctx, LetterQuery{Partition: 2, Limit: 1, Unreplayed: true})
		require.NoError(r.t, err)
		require.Len(r.t, one, 1)
		require.Equal(r.t, 2, one[0].Partition)
		require.NoError(r.t, letters.Clear(ctx))
		none, err := letters.List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Empty(r.t, none)
	})
}
