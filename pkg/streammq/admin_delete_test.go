package streammq

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/admin"
	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/retry"
)

// keys are the names of all keys, but those of statuses.
func (r *rig) keys() []string {
	r.t.Helper()
	var keys []string
	for _, key := range r.allKeys("*") {
		if strings.Contains(key, r.topic+":") || strings.Contains(key, r.topic+"-") {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	return keys
}

const steadyLease = 20 * time.Second

// steady lets nobody lose its lease on a busy machine, where the test has no use for that.
func steady(c *SubscriberConfig) { c.Lease = steadyLease }

// fill leaves everything behind that a topic can have.
func (r *rig) fill(q *MQ) {
	r.t.Helper()
	ctx, seen := r.t.Context(), &log{}
	_, err := q.CreateTopic(ctx, Topic{Name: r.topic, Partitions: 2, Status: true})
	require.NoError(r.t, err)
	var messages []Message
	for i := range 40 {
		messages = append(messages, Message{Key: fmt.Sprint(i), Payload: []byte(fmt.Sprint(i % 4))})
	}
	messages = append(messages, Message{Payload: make([]byte, DefaultInlineMax+1)})
	_, err = q.NewProducer(nil).PublishBatch(ctx, r.topic, messages)
	require.NoError(r.t, err)
	run := func(group string, mode RetryMode) *running {
		return r.subscribe(q, seen.handler(func(d *Delivery) Result {
			switch string(d.Payload) {
			case "1":
				return RetryAfter(time.Hour, errBoom)
			case "2":
				return DeadLetter(errBoom)
			}
			return Success()
		}), func(c *SubscriberConfig) {
			steady(c)
			c.Group, c.RetryMode = group, mode
		})
	}
	a, b := run("a", RetryRepublish), run("b", RetryInPlace)
	eventually(r.t, func() bool {
		return len(seen.all()) >= 82 && r.seen.count(EventRetried) == 20 && r.seen.count(EventDead) == 20
	}, "both groups have seen all")
	letters, err := q.Letters(r.topic).List(ctx, LetterQuery{Partition: -1, Limit: 1})
	require.NoError(r.t, err)
	a.end()
	b.end()
	_, err = q.Letters(r.topic).Replay(ctx, letters[0])
	require.NoError(r.t, err)
	r.do("ZADD", r.source(0).Retry(), "1", "a:0:broken")
	_, _, err = retry.MoveDue(q.core, ctx, r.source(0), 10)
	require.NoError(r.t, err)
}

func TestDeletedTopicLeavesNoKeyBehind(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		require.ErrorIs(r.t, q.Admin(r.topic).Delete(ctx, Removal{}), ErrUnknownTopic)
		r.fill(q)
		require.Greater(r.t, len(r.keys()), 10)
		require.NoError(r.t, q.Admin(r.topic).Delete(ctx, Removal{}))
		require.Empty(r.t, r.keys())
		require.Zero(r.t, r.number("SISMEMBER", core.RegistryKey, r.topic))
		_, err := q.Partitions(ctx, r.topic)
		require.ErrorIs(r.t, err, ErrUnknownTopic)
		require.ErrorIs(r.t, q.Admin(r.topic).Delete(ctx, Removal{}), ErrUnknownTopic)
	})
}

// Whoever knew the topic learns that it is gone, and makes nothing of it again.
func TestDeletedTopicIsNotMadeAgainByThoseWhoKnewIt(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		knowing := r.mq(nil) // another process, which trusts what it knows for a while
		r.topicOf(q, 4)
		cfg := NewDefaultSubscriberConfig(r.topic, "g", seen.handler(succeed))
		hasty(&cfg)
		steady(&cfg)
		var ends []chan error
		for range 2 {
			s, err := knowing.NewSubscriber(cfg)
			require.NoError(r.t, err)
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			ends = append(ends, ended)
		}
		p := knowing.NewProducer(nil)
		for i := range 20 {
			_, err := p.Publish(ctx, r.topic, Message{Key: fmt.Sprint(i)})
			require.NoError(r.t, err)
		}
		eventually(r.t, func() bool { return len(seen.all()) >= 20 }, "it works")
		require.NoError(r.t, q.Admin(r.topic).Delete(ctx, Removal{Force: true}))
		_, err := p.Publish(ctx, r.topic, Message{})
		require.ErrorIs(r.t, err, ErrUnknownTopic)
		_, err = p.Publish(ctx, r.topic, Message{Payload: make([]byte, DefaultInlineMax+1)})
		require.ErrorIs(r.t, err, ErrUnknownTopic)
		for _, ended := range ends {
			select {
			case err := <-ended:
				require.ErrorIs(r.t, err, ErrUnknownTopic)
			case <-time.After(waitLimit):
				r.t.Fatal("Run does not end")
			}
		}
		require.Empty(r.t, r.keys())
		require.Zero(r.t, r.seen.count(EventHealed))
		// The name is free.
		r.topicOf(q, 2)
		_, err = p.Publish(ctx, r.topic, Message{})
		require.NoError(r.t, err)
	})
}

// A deletion that was cut off anywhere is ended by the next; until then the topic is unknown and cannot be made.
func TestDeletionThatWasCutOffIsEnded(t *testing.T) {
	for name, cut := range map[string]func(r *rig, a *Admin){
		"after the mark": func(*rig, *Admin) {},
		"after one partition's stream": func(r *rig, a *Admin) {
			groups, err := admin.GroupNames(a, r.t.Context(), []core.Source{r.source(0), r.source(1)})
			require.NoError(r.t, err)
			_, err = admin.Mark(a, r.t.Context(), groups)
			require.NoError(r.t, err)
			r.do("DEL", r.source(0).Stream())
		},
		"after the sweep": func(r *rig, a *Admin) {
			require.NoError(r.t, admin.Sweep(a, r.t.Context(), []core.Source{r.source(0), r.source(1)}, []string{"a", "b"}))
			r.do("SREM", core.RegistryKey, r.topic)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothLayouts(t, func(r *rig) {
				q, ctx := r.mq(nil), r.t.Context()
				r.fill(q)
				a := q.Admin(r.topic)
				_, err := admin.Mark(a, ctx, nil)
				require.NoError(r.t, err)
				cut(r, a)
				_, err = r.mq(nil).CreateTopic(ctx, Topic{Name: r.topic, Partitions: 1})
				require.ErrorIs(r.t, err, ErrUnknownTopic)
				_, err = r.mq(nil).NewProducer(nil).Publish(ctx, r.topic, Message{})
				require.ErrorIs(r.t, err, ErrUnknownTopic)
				info, err := q.Topic(ctx, r.topic)
				require.NoError(r.t, err)
				require.True(r.t, info.Deleting)
				require.NoError(r.t, a.Delete(ctx, Removal{}))
				require.Empty(r.t, r.keys())
			})
		})
	}
}

func TestDeletedStreamLeavesNoKeyBehind(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.addSingle("0", "1", "2")
		m := r.single(q, "c", RoleBoth, seen.handler(func(d *Delivery) Result {
			switch string(d.Payload) {
			case "1":
				return RetryAfter(time.Hour, errBoom)
			case "2":
				return DeadLetter(errBoom)
			}
			return Success()
		}), func(c *SubscriberConfig) { c.ClaimIdle = time.Hour })
		eventually(r.t, func() bool { return r.seen.count(EventDead) == 1 }, "all seen")
		a := q.StreamAdmin(r.topic + "-tasks")
		require.ErrorIs(r.t, a.Delete(ctx, Removal{}), ErrGroupLive)
		m.end()
		require.NoError(r.t, a.Delete(ctx, Removal{}))
		require.Empty(r.t, r.keys())
	})
}

func TestPollOfADeletedTopicIsTold(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		cfg := NewDefaultConsumerConfig(r.topic, "g")
		c, err := q.NewConsumer(cfg)
		require.NoError(r.t, err)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		eventually(r.t, func() bool { return len(c.Partitions()) == 2 }, "it owns them")
		require.NoError(r.t, q.Admin(r.topic).Delete(ctx, Removal{Force: true}))
		require.ErrorIs(r.t, <-ended, ErrUnknownTopic)
		_, err = c.Poll(ctx, 1, time.Millisecond)
		require.ErrorIs(r.t, err, ErrUnknownTopic)
		require.Empty(r.t, r.keys())
	})
}

// liveError is the refusal that says who lives.
func liveError(r *rig, err error) *GroupLiveError {
	r.t.Helper()
	var live *GroupLiveError
	require.ErrorAs(r.t, err, &live)
	require.ErrorIs(r.t, err, ErrGroupLive)
	for _, want := range append([]string{live.Group, live.Topic, "stop them", "force"}, live.Members...) {
		require.ErrorContains(r.t, err, want)
	}
	return live
}

func TestTopicWithLiveMembersIsDeletedByForceAlone(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 2)
		m := r.subscribe(q, seen.handler(succeed), steady)
		eventually(r.t, func() bool { return len(m.Partitions()) == 2 }, "it owns them")
		a := q.Admin(r.topic)
		live := liveError(r, a.Delete(ctx, Removal{}))
		require.Equal(r.t, GroupLiveError{Topic: r.topic, Group: "g", Members: []string{m.Name()}}, *live)
		info, err := q.Topic(ctx, r.topic)
		require.NoError(r.t, err)
		require.False(r.t, info.Deleting, "nothing was done")
		r.publish(q, "k", "0")
		eventually(r.t, func() bool { return len(seen.all()) == 1 }, "it works on")
		m.end()

		letters, err := q.Letters(r.topic).NewSubscriber(NewDefaultLetterConfig("mourners", "c1"), func(context.Context, Letter) Result { return Success() })
		require.NoError(r.t, err)
		reading, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- letters.Run(reading) }()
		end := sync.OnceFunc(func() { stop(); <-ended })
		defer end()
		eventually(r.t, func() bool {
			return errors.Is(admin.RefuseAnyLive(a, ctx, []core.Source{r.source(0), r.source(1)}), ErrGroupLive)
		}, "it lives")
		require.Equal(r.t, "mourners", liveError(r, a.Delete(ctx, Removal{})).Group)
		end()
		require.NoError(r.t, a.Delete(ctx, Removal{}))
		require.Empty(r.t, r.keys())
	})
}

// A deletion that began goes on, whoever lives: the topic is unknown already.
func TestDeletionThatBeganAsksNobody(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 1)
		r.member(q, "m")
		a := q.Admin(r.topic)
		require.Equal(r.t, []string{"m"}, liveError(r, a.Delete(ctx, Removal{})).Members, "who owns a partition lives")
		_, err := admin.Mark(a, ctx, nil)
		require.NoError(r.t, err)
		require.NoError(r.t, a.Delete(ctx, Removal{}))
		require.Empty(r.t, r.keys())
	})
}

func TestGroupDeletedUnderItsMembersBeginsAnew(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 1)
		m := r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.Retention = Retention{} })
		r.publish(q, "k", "0", "k", "1")
		eventually(r.t, func() bool { return len(seen.all()) == 2 && r.pending(0, "g") == 0 }, "both are done")
		a := q.Admin(r.topic)
		require.Equal(r.t, []string{m.Name()}, liveError(r, a.DeleteGroup(ctx, "g", Removal{})).Members)
		require.NoError(r.t, a.DeleteGroup(ctx, "g", Removal{Force: true}))
		eventually(r.t, func() bool { return len(seen.all()) >= 4 }, "the member makes it again and gets both anew")
		m.end()
		require.NoError(r.t, a.DeleteGroup(ctx, "g", Removal{}))
	})
}

func TestManyLiveMembersAreCountedNotListed(t *testing.T) {
	t.Parallel()
	err := &GroupLiveError{Topic: "orders", Group: "g", Members: []string{"a", "b", "c", "d", "e", "f", "h"}}
	require.EqualError(t, err, "group g of orders: the group has live members: 7 (a, b, c, d, e and 2 more): stop them, or wait a lease after they died, or force it")
}
