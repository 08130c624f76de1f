package streammq

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What an operator asks of a topic that is not there is refused with its name, and makes no key.
func TestAdminOfAnUnknownTopic(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		a := q.Admin(r.topic)
		for name, ask := range map[string]func() error{
			"topic":       func() error { _, err := q.Topic(ctx, r.topic); return err },
			"partitions":  func() error { _, err := q.Partitions(ctx, r.topic); return err },
			"stats":       func() error { _, err := a.Stats(ctx); return err },
			"groups":      func() error { _, err := a.Groups(ctx); return err },
			"group stats": func() error { _, err := a.GroupStats(ctx, "g"); return err },
			"owners":      func() error { _, err := a.Owners(ctx, "g"); return err },
			"in flight":   func() error { _, err := a.InFlight(ctx, "g"); return err },
			"range":       func() error { _, err := a.Range(ctx, 0, "-", "+", 1); return err },
			"recent":      func() error { _, err := a.Recent(ctx, 1); return err },
			"trim":        func() error { _, err := a.Trim(ctx, Retention{MaxLen: 1}, false); return err },
			"publish":     func() error { _, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{}); return err },
		} {
			err := ask()
			require.ErrorIs(r.t, err, ErrUnknownTopic, name)
			require.ErrorContains(r.t, err, r.topic, name)
		}
		require.Empty(r.t, r.allKeys("*"+r.topic+"*"))
	})
}

// Each group has a frontier of its own, which moves as it acknowledges; a trim keeps what the slower one needs.
func TestFrontiersOfTwoGroups(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx, s := r.mq(nil), r.t.Context(), r.source(0)
		r.topicOf(q, 1)
		var pairs []string
		for i := range 4 {
			pairs = append(pairs, "k", strconv.Itoa(i))
		}
		r.publish(q, pairs...)
		ids := r.entries(s.stream())
		for group, finished := range map[string]int{"fast": 3, "slow": 1} {
			r.do("XGROUP", "CREATE", s.stream(), group, "0")
			r.do("XREADGROUP", "GROUP", group, "c", "STREAMS", s.stream(), ">")
			for i := range finished {
				r.do("XACK", s.stream(), group, ids[i].ID)
			}
			stats, err := q.GroupStats(ctx, r.topic, group)
			require.NoError(r.t, err)
			require.Equal(r.t, ids[finished].ID, stats[0].Frontier, group)
		}
		n, err := q.Trim(ctx, r.topic, Retention{Finished: true})
		require.NoError(r.t, err)
		require.Equal(r.t, 1, n)
	})
}

// Without a policy of deletion and within the retention finished entries stay, for a group that comes later.
func TestFinishedEntriesStayByDefault(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, late := r.mq(nil), &log{}, &log{}
		r.topicOf(q, 1)
		r.publish(q, "k", "0", "k", "1")
		r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.TrimEvery = 10 * time.Millisecond })
		eventually(r.t, func() bool { return len(seen.all()) == 2 && r.pending(0, "g") == 0 }, "finished")
		require.Equal(r.t, 2, r.number("XLEN", r.source(0).stream()))
		r.subscribe(q, late.handler(succeed), func(c *SubscriberConfig) { c.Group = "late" })
		eventually(r.t, func() bool { return len(late.all()) == 2 }, "the later group has both")
	})
}

// A trim by age takes what is old enough, and counts it.
func TestTrimByAgeTakesWhatIsOld(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, s := r.mq(nil), r.source(0)
		r.topicOf(q, 1)
		now := time.UnixMilli(int64(r.number("EVAL", "local t = redis.call('TIME') return t[1] * 1000", "1", s.stream())))
		for _, ago := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Minute} {
			r.do("XADD", s.stream(), strconv.FormatInt(now.Add(-ago).UnixMilli(), 10)+"-0", "payload", "x")
		}
		for i, want := range []int{2, 0} {
			n, err := q.Trim(context.Background(), r.topic, Retention{MaxAge: time.Hour})
			require.NoError(r.t, err)
			require.Equal(r.t, want, n, "trim %d", i)
		}
		require.Equal(r.t, 1, r.number("XLEN", s.stream()))
	})
}

// Pausing twice is pausing once, and what runs goes on.
func TestPauseTwiceWhileAMessageRuns(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		began, release := make(chan struct{}), make(chan struct{})
		m := r.subscribe(q, seen.handler(func(d *Delivery) Result {
			if string(d.Payload) == "0" {
				close(began)
				<-release
			}
			return Success()
		}), func(c *SubscriberConfig) { c.Batch = 1 })
		r.publish(q, "k", "0")
		<-began
		m.Pause()
		m.Pause()
		close(release)
		eventually(r.t, func() bool { return r.pending(0, "g") == 0 }, "it ends")
		eventually(r.t, m.idle, "and rests")
		r.publish(q, "k", "1")
		require.Never(r.t, func() bool { return len(seen.all()) > 1 }, 100*time.Millisecond, 10*time.Millisecond)
		m.Resume()
		m.Resume()
		eventually(r.t, func() bool { return len(seen.all()) == 2 }, "it goes on")
	})
}
