package streammq

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// deadStream is a stream of dead letters that only this test uses; on a cluster it lies in a slot of its own.
func (r *rig) deadStream() string { return r.topic + "-dead" }

func TestLettersOfManyGoToOneStream(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 3)
		r.publish(q, "a", "0", "b", "1", "c", "2")
		r.addSingle("3")
		r.do("XADD", r.source(1).Stream(), "*", "color", "red")
		var well sync.Map
		handler := seen.handler(func(d *Delivery) Result {
			if _, ok := well.Load(string(d.Payload)); ok {
				return Success()
			}
			return Fail(errBoom)
		})
		named := func(c *SubscriberConfig) {
			steady(c)
			c.DeadLetterStream, c.ClaimIdle = r.deadStream(), time.Hour
		}
		r.subscribe(q, handler, named)
		r.single(q, "c", RoleBoth, handler, named)
		letters := q.NamedLetters(r.deadStream())
		var list []Letter
		eventually(r.t, func() bool {
			var err error
			list, err = letters.List(ctx, LetterQuery{Partition: -1})
			return err == nil && len(list) == 5
		}, "five letters")
		require.Zero(r.t, r.number("EXISTS", r.source(0).Dlq()), "none beside them")
		from := map[string]string{}
		for _, letter := range list {
			from[string(letter.Payload)] = letter.Topic
			require.Equal(r.t, strings.HasSuffix(letter.Topic, "-tasks"), letter.Single)
		}
		require.Equal(r.t, map[string]string{"0": r.topic, "1": r.topic, "2": r.topic, "3": r.topic + "-tasks", "": r.topic}, from)
		for _, payload := range []string{"0", "1", "2", "3"} {
			well.Store(payload, true)
		}
		n, err := letters.ReplayAll(ctx, LetterQuery{Partition: -1}, 0, true)
		require.NoError(r.t, err)
		require.Equal(r.t, 5, n, "a dry run does not look into them")
		n, err = letters.ReplayAll(ctx, LetterQuery{Partition: -1}, 0, false)
		require.NoError(r.t, err)
		require.Equal(r.t, 4, n, "each to where it came from")
		eventually(r.t, func() bool { return len(seen.all()) == 8 }, "all run again")
		for _, letter := range list {
			_, err := letters.Replay(ctx, letter)
			if letter.Raw != nil {
				require.ErrorIs(r.t, err, ErrMalformed)
				continue
			}
			require.ErrorIs(r.t, err, ErrReplayed)
			got, err := letters.Get(ctx, -1, letter.ID)
			require.NoError(r.t, err)
			require.NotEmpty(r.t, got.Replayed)
		}
		n, err = letters.Delete(ctx, -1, list[0].ID)
		require.NoError(r.t, err)
		require.Equal(r.t, 1, n)
		require.NoError(r.t, letters.Clear(ctx))
		require.Zero(r.t, r.number("EXISTS", r.deadStream()))
	})
}

// The dead letter is in its own slot and the entry is not yet acknowledged: whoever has the entry next writes no second one.
func TestCrashBetweenALetterElsewhereAndItsAcknowledgement(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 1)
		a := r.member(q, "a")
		a.Letters = r.deadStream()
		r.publish(q, "k", "0")
		got := r.next(a)
		parcels, err := a.Unpack(ctx, got.Entries)
		require.NoError(r.t, err)
		if r.layout == LayoutCluster { // on one Redis there is no between
			require.NoError(r.t, a.AddDeadLetter(ctx, of(got.Entries[0]), a.Letter(&parcels[0], 1, errBoom, time.Now())))
		}
		r.expire()
		b := r.member(q, "b")
		b.Letters = r.deadStream()
		again, err := b.Recover(ctx, 10, "")
		require.NoError(r.t, err)
		parcels, err = b.Unpack(ctx, again.Entries)
		require.NoError(r.t, err)
		done, err := b.DeadLetter(ctx, &parcels[0], 1, errBoom)
		require.NoError(r.t, err)
		require.True(r.t, done)
		require.Zero(r.t, r.pending(0, "g"))
		require.Equal(r.t, 1, r.number("XLEN", r.deadStream()))
	})
}

// Who has lost the entry writes no dead letter of it.
func TestLostEntryBecomesNoLetterElsewhere(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 1)
		a, e := handedOver(r, q)
		a.Letters = r.deadStream()
		parcels, err := a.Unpack(ctx, []wire.Raw{e})
		require.NoError(r.t, err)
		done, err := a.DeadLetter(ctx, &parcels[0], 1, errBoom)
		require.NoError(r.t, err)
		require.False(r.t, done)
		require.Zero(r.t, r.number("EXISTS", r.deadStream()))
		require.Equal(r.t, 1, r.pending(0, "g"))
	})
}

// What cannot be written is not acknowledged.
func TestUnwritableLetterStreamAcknowledgesNothing(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 1)
		r.do("SET", r.deadStream(), "no stream")
		r.publish(q, "k", "0")
		r.subscribe(q, seen.handler(func(*Delivery) Result { return Fail(errBoom) }), func(c *SubscriberConfig) {
			steady(c)
			c.DeadLetterStream = r.deadStream()
		})
		eventually(r.t, func() bool { return len(seen.all()) >= 2 }, "it runs again")
		require.Equal(r.t, 1, r.pending(0, "g"))
		r.do("DEL", r.deadStream())
		eventually(r.t, func() bool {
			list, err := q.NamedLetters(r.deadStream()).List(ctx, LetterQuery{Partition: -1})
			return err == nil && len(list) == 1 && r.pending(0, "g") == 0
		}, "one letter")
	})
}

func TestReplayToADeletedTopicIsRefused(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 1)
		r.publish(q, "k", "0")
		m := r.subscribe(q, seen.handler(func(*Delivery) Result { return Fail(errBoom) }), func(c *SubscriberConfig) {
			steady(c)
			c.DeadLetterStream = r.deadStream()
		})
		eventually(r.t, func() bool { return r.seen.count(EventDead) == 1 }, "a dead letter")
		m.end()
		require.NoError(r.t, q.Admin(r.topic).Delete(ctx, Removal{Force: true}))
		letters := q.NamedLetters(r.deadStream())
		list, err := letters.List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, list, 1, "letters of another name stay")
		_, err = letters.Replay(ctx, list[0])
		require.ErrorIs(r.t, err, ErrUnknownTopic)
		require.Zero(r.t, r.number("EXISTS", r.source(0).Stream()), "and nothing is made again")
	})
}

func TestDeadLettersAreConsumedByAGroup(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 3)
		receipts := r.publish(q, "a", "0", "b", "1", "c", "2")
		r.do("XADD", r.source(2).Stream(), "*", "color", "red")
		m := r.subscribe(q, (&log{}).handler(func(d *Delivery) Result {
			if d.Attempt == 1 {
				return Retry(errBoom) // a second entry, for this group only
			}
			return Fail(errBoom)
		}), steady)
		var mu sync.Mutex
		runs := map[string]int{}
		cfg := NewDefaultLetterConfig("helpers", "one")
		hasty(&cfg)
		steady(&cfg)
		cfg.ClaimIdle = time.Hour
		s, err := q.Letters(r.topic).NewSubscriber(cfg, func(_ context.Context, letter Letter) Result {
			mu.Lock()
			defer mu.Unlock()
			name := string(letter.Payload)
			if letter.Raw != nil {
				name = "raw " + letter.Raw["color"]
			}
			runs[name]++
			switch {
			case letter.Topic != r.topic || letter.ID == "" || letter.Error == "":
				return Fail(errBoom)
			case name == "1" && runs[name] == 1:
				return RetryAfter(10*time.Millisecond, errBoom)
			case name == "2":
				return DeadLetter(errBoom) // there are no dead letters of dead letters
			}
			return Success()
		})
		require.NoError(r.t, err)
		runCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(runCtx) }()
		eventually(r.t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return runs["0"] == 1 && runs["1"] == 2 && runs["2"] == 1 && runs["raw red"] == 1
		}, "each letter runs")
		list, err := q.Letters(r.topic).List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, list, 4, "they stay until they are deleted: %v", receipts)
		m.end()
		require.NoError(r.t, q.Admin(r.topic).Delete(ctx, Removal{Force: true}))
		select {
		case err := <-ended:
			require.ErrorIs(r.t, err, ErrUnknownTopic)
		case <-time.After(waitLimit):
			r.t.Fatal("Run does not end")
		}
		require.Empty(r.t, r.keys())
	})
}

func TestLetterSubscriberOfAnUnknownTopic(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		s, err := r.mq(nil).Letters(r.topic).NewSubscriber(NewDefaultLetterConfig("g", "c"), func(context.Context, Letter) Result { return Success() })
		require.NoError(r.t, err)
		require.ErrorIs(r.t, s.Run(r.t.Context()), ErrUnknownTopic)
		_, err = r.mq(nil).Letters(r.topic).NewSubscriber(NewDefaultLetterConfig("g", "c"), nil)
		require.ErrorIs(r.t, err, ErrConfig)
	})
}
