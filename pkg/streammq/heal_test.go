package streammq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
)

// A flushed server has no topic, no group, no epoch: all is made again, and nobody writes under the old epoch.
func TestFlushedServerIsHealed(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 2)
	r.subscribe(q, seen.handler(succeed), nil)
	for i := range 3 {
		r.publish(q, "k", strconv.Itoa(i))
		eventually(t, func() bool { return len(seen.all()) == i+1 }, "message %d", i)
		r.do("FLUSHDB")
	}
	eventually(t, func() bool { return r.seen.count(EventHealed) > 0 }, "healing is told")
}

func TestDestroyedGroupIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	r.subscribe(q, seen.handler(succeed), nil)
	r.publish(q, "k", "0")
	eventually(t, func() bool { return r.seen.count(EventAcked) == 1 }, "one")
	r.do("XGROUP", "DESTROY", r.source(0).Stream(), "g")
	r.publish(q, "k", "1")
	eventually(t, func() bool { return strings.Contains(fmt.Sprint(seen.payloads()), "1") }, "it goes on")
}

// A server that was away costs nothing but time.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	r, server := newPrivateRig(t)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 2)
	r.subscribe(q, seen.handler(succeed), nil)
	r.publish(q, "a", "0", "b", "1")
	eventually(t, func() bool { return r.seen.count(EventAcked) == 2 }, "before")
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Restart(t.Context()))
	eventually(t, func() bool {
		_, err := q.NewProducer(nil).Publish(context.Background(), r.topic, Message{Key: "a", Payload: []byte("2")})
		return err == nil
	}, "published after")
	eventually(t, func() bool { return strings.Contains(fmt.Sprint(seen.payloads()), "2") }, "after")
}

func TestStuckHandlerDoesNotHoldUpRunForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 1)
	r.publish(q, "", "0")
	began, goOn := make(chan struct{}), make(chan struct{})
	cfg := NewDefaultSubscriberConfig(r.topic, "g", func(context.Context, *Delivery) Result {
		close(began)
		<-goOn // it looks at no ctx
		return Success()
	})
	hasty(&cfg)
	cfg.StopTimeout = 50 * time.Millisecond
	s, err := q.NewSubscriber(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-began
	workers := consume.Owned(s)
	cancel()
	require.ErrorIs(t, <-done, ErrStuck)
	close(goOn)
	<-workers[0].Done
	require.ErrorIs(t, s.Run(t.Context()), ErrRunning)
}

// A handler that runs longer than it may loses its partition to another member.
func TestHungHandlerLosesItsPartition(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	r.publish(q, "k", "0")
	goOn := make(chan struct{})
	var once sync.Once
	r.subscribe(q, func(_ context.Context, d *Delivery) Result {
		hang := false
		once.Do(func() { hang = true })
		if hang {
			<-goOn
		}
		seen.add(d)
		return Success()
	}, func(c *SubscriberConfig) {
		mortal(c)
		c.HandlerTimeout = 100 * time.Millisecond
	})
	eventually(t, func() bool { return r.pending(0, "g") == 1 }, "it was read")
	r.subscribe(q, seen.handler(succeed), nil)
	eventually(t, func() bool { return len(seen.all()) == 1 && r.pending(0, "g") == 0 }, "the other has run it")
	close(goOn)
	eventually(t, func() bool { return r.seen.count(EventRefused) == 1 }, "the late acknowledgement is refused")
}

// Who learns by a refused write that its partition is another's runs nothing more of what it has read.
func TestRefusalDropsTheRestOfTheBatch(t *testing.T) {
	onBothModes(t, func(r *rig, mode func(*SubscriberConfig)) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		r.publish(q, "k", "0", "k", "1", "k", "2")
		var once sync.Once
		m := r.subscribe(q, seen.handler(func(*Delivery) Result {
			once.Do(func() {
				r.steal(q, "thief")
			})
			return Retry(errBoom)
		}), func(c *SubscriberConfig) {
			mode(c)
			c.Renew, c.Lease, c.Rebalance = 10*time.Second, 30*time.Second, 10*time.Second // nothing but the refusal tells it
		})
		eventually(r.t, func() bool { return r.seen.count(EventRefused) == 1 }, "refused")
		eventually(r.t, func() bool { return len(m.Partitions()) == 0 }, "its worker has ended")
		require.Equal(r.t, []string{"0"}, seen.payloads())
		require.Equal(r.t, 3, r.pending(0, "g"))
	})
}
