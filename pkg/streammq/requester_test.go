package streammq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// requester runs one until the test ends.
func (r *rig) requester(q *MQ, change func(*RequesterConfig)) *Requester {
	r.t.Helper()
	cfg := NewDefaultRequesterConfig("client")
	if change != nil {
		change(&cfg)
	}
	client, err := q.NewRequester(cfg, nil)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		require.NoError(r.t, <-done)
		require.Zero(r.t, r.number("EXISTS", core.ReplyKey(nameOf(client))), "who leaves in order leaves nothing behind")
	})
	return client
}

func (r *rig) request(client *Requester, payload string) (Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return client.Request(ctx, r.topic, Message{Key: payload, Payload: []byte(payload)})
}

func echo(d *Delivery) Result { return Replied(append([]byte("re: "), d.Payload...)) }

func TestManyRequestsShareOneReader(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 4)
		r.subscribe(q, seen.handler(echo), steady)
		client := r.requester(q, nil)
		var all sync.WaitGroup
		errs := make(chan error, 200)
		for i := range 200 {
			all.Go(func() {
				reply, err := r.request(client, strconv.Itoa(i))
				if err == nil && string(reply.Payload) != "re: "+strconv.Itoa(i) {
					err = fmt.Errorf("request %d got %q", i, reply.Payload)
				}
				errs <- err
			})
		}
		all.Wait()
		for range 200 {
			require.NoError(r.t, <-errs)
		}
		// A lease that a busy machine lets expire makes a request run twice.
		eventually(r.t, func() bool { return r.seen.count(EventReplied)-r.seen.count(EventLateReply) >= 200 }, "all are counted")
		require.Positive(r.t, r.number("PTTL", core.ReplyKey(nameOf(client))), "it expires should the client die")
		eventually(r.t, func() bool { return r.number("XLEN", core.ReplyKey(nameOf(client))) == 0 }, "what was read is removed")
		require.ErrorIs(r.t, client.Run(r.t.Context()), ErrRunning)
	})
}

func TestRequestFailsWithItsHandlersLastError(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		r.subscribe(q, seen.handler(func(d *Delivery) Result {
			switch string(d.Payload) {
			case "twice":
				return Retry(fmt.Errorf("attempt %d: %w", d.Attempt, errBoom))
			case "large":
				return Replied(make([]byte, 2000))
			case "empty":
				return Replied(nil)
			}
			return FromError(fmt.Errorf("%w: %w", ErrPermanent, errBoom))
		}), func(c *SubscriberConfig) {
			steady(c)
			c.Retry.MaxAttempts = 2
		})
		small := r.mq(func(c *Config) { c.MaxPayload = 1000 })
		client := r.requester(small, nil)
		_, err := r.request(client, "never")
		require.ErrorIs(r.t, err, ErrRemote)
		require.ErrorContains(r.t, err, "boom")
		reply, err := r.request(client, "twice")
		require.ErrorIs(r.t, err, ErrRemote)
		require.ErrorContains(r.t, err, "attempt 2", "the first failure is no answer")
		require.Equal(r.t, 2, reply.Attempt)
		require.Equal(r.t, "g", reply.Group)
		reply, err = r.request(client, "empty")
		require.NoError(r.t, err)
		require.Empty(r.t, reply.Payload)
	})
}

func TestTooLargeReplyIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(func(c *Config) { c.MaxPayload = 1000 }), &log{}
	r.topicOf(q, 1)
	r.subscribe(q, seen.handler(func(*Delivery) Result { return Replied(make([]byte, 1001)) }), steady)
	_, err := r.request(r.requester(q, nil), "x")
	require.ErrorIs(t, err, ErrRemote)
	require.ErrorContains(t, err, "at most 1000")
}

// A responder that dies with the request leaves it to the next owner, who answers; so does one that dies after it has
// answered: then the second answer finds nobody waiting.
func TestRequestOfACrashedResponderIsAnsweredByAnother(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		dead := r.member(q, "dead")
		client := r.requester(q, nil)
		first := make(chan error, 1)
		go func() {
			reply, err := r.request(client, "0")
			if err == nil && string(reply.Payload) != "re: 0" {
				err = fmt.Errorf("got %q", reply.Payload)
			}
			first <- err
		}()
		var got fence.Fetched
		eventually(r.t, func() bool {
			got = r.next(dead)
			return len(got.Entries) == 1
		}, "read, and never answered")
		r.expire()
		m := r.subscribe(q, seen.handler(echo), steady)
		require.NoError(r.t, <-first)
		m.end()

		// This one has answered and not acknowledged.
		dead = r.member(q, "dead")
		go func() {
			_, err := r.request(client, "1")
			first <- err
		}()
		eventually(r.t, func() bool {
			got = r.next(dead)
			return len(got.Entries) == 1
		}, "read")
		parcels, err := dead.Unpack(r.t.Context(), got.Entries)
		require.NoError(r.t, err)
		s, err := q.NewSubscriber(NewDefaultSubscriberConfig(r.topic, "g", seen.handler(echo)))
		require.NoError(r.t, err)
		w := consume.NewWorker(s, dead.Src, dead.Consumer, dead.Epoch)
		defer w.Stop()
		require.NoError(r.t, w.Respond(r.t.Context(), &parcels[0], dead.Delivery(&parcels[0]), Replied([]byte("first"))))
		require.NoError(r.t, <-first)
		r.expire()
		r.subscribe(q, seen.handler(echo), steady)
		eventually(r.t, func() bool { return r.seen.count(EventLateReply) == 1 && r.pending(0, "g") == 0 }, "the second is dropped and counted")
	})
}

func TestNobodyRunsARequestAfterItsTime(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		_, err := q.CreateTopic(r.t.Context(), Topic{Name: r.topic, Partitions: 1, Status: true})
		require.NoError(r.t, err)
		client := r.requester(q, nil)
		<-readyOf(client)
		ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Second) // in which a busy server takes the message
		defer cancel()
		const uuid = "01890000-0000-7000-8000-00000000000"
		id := uuid + string(r.layout[0]) + r.topic
		_, err = client.Request(ctx, r.topic, Message{Payload: []byte("early"), Headers: map[string]string{HeaderUUID: id}})
		require.ErrorIs(r.t, err, ErrNoReply)
		require.ErrorIs(r.t, err, context.DeadlineExceeded)
		require.Zero(r.t, openOf(client))
		eventually(r.t, func() bool { return r.overdue(r.entries(r.source(0).Stream())[0]) }, "over by the server's clock too")
		r.subscribe(q, seen.handler(echo), steady)
		eventually(r.t, func() bool { return r.seen.count(EventOverdue) == 1 && r.pending(0, "g") == 0 }, "acknowledged")
		require.Empty(r.t, seen.all())
		statuses, err := q.Statuses(r.t.Context(), id)
		require.NoError(r.t, err)
		require.Equal(r.t, StateFailed, statuses[id].State)
		require.Equal(r.t, ErrNoReply.Error(), statuses[id].Error.Message)
	})
}

// overdue tells whether nobody waits for the reply to a message any more, as its handlers judge it.
func (r *rig) overdue(e rueidis.XRangeEntry) bool {
	r.t.Helper()
	headers, err := wire.DecodeHeaders(e.FieldValues[wire.FieldHeaders])
	require.NoError(r.t, err)
	timeout, err := strconv.ParseInt(headers[HeaderReplyTimeout], 10, 64)
	require.NoError(r.t, err)
	text, _, _ := strings.Cut(e.ID, "-")
	began, err := strconv.ParseInt(text, 10, 64)
	require.NoError(r.t, err)
	clock, err := r.client.Do(context.Background(), r.client.B().Time().Build()).AsIntSlice()
	require.NoError(r.t, err)
	return clock[0]*1000+clock[1]/1000 >= began+timeout
}

func TestHandlerThatSettlesItselfReplies(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		settled := make(chan error, 1)
		r.subscribe(q, func(ctx context.Context, d *Delivery) Result {
			go func() { settled <- d.Reply(context.WithoutCancel(ctx), []byte("later")) }()
			return Settled()
		}, steady)
		reply, err := r.request(r.requester(q, nil), "0")
		require.NoError(r.t, err)
		require.Equal(r.t, "later", string(reply.Payload))
		require.NoError(r.t, <-settled)
		require.Zero(r.t, r.pending(0, "g"))
	})
}

// A reply to a client that is gone makes no key.
func TestReplyToADeadClientIsDropped(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		r.subscribe(q, seen.handler(echo), steady)
		for _, to := range []string{"gone", "not a name", r.topic + ":meta"} {
			_, err := q.NewProducer(nil).Publish(r.t.Context(), r.topic, Message{Headers: map[string]string{
				HeaderReplyTo: to, HeaderCorrelationID: "1", HeaderReplyTimeout: "60000",
			}})
			require.NoError(r.t, err)
		}
		eventually(r.t, func() bool { return r.seen.count(EventAcked) == 3 && r.seen.count(EventReplied) == 1 }, "all are done, and one is counted")
		require.Zero(r.t, r.number("EXISTS", core.ReplyKey("gone")))
	})
}

// A flushed server has no stream of replies: it is made again.
func TestRequesterSurvivesAFlush(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(func(c *Config) { c.MetaRefresh = time.Nanosecond }), &log{}
	r.topicOf(q, 1)
	r.subscribe(q, seen.handler(echo), steady)
	client := r.requester(q, func(c *RequesterConfig) { c.TTL = hastyLease })
	_, err := r.request(client, "0")
	require.NoError(t, err)
	r.do("FLUSHDB")
	eventually(t, func() bool { return r.number("EXISTS", core.ReplyKey(nameOf(client))) == 1 }, "made again")
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		reply, err := client.Request(ctx, r.topic, Message{Payload: []byte("1")})
		return err == nil && string(reply.Payload) == "re: 1"
	}, "and read")
}

func TestRequesterConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, NewDefaultRequesterConfig("c").Validate())
	for name, change := range map[string]func(*RequesterConfig){
		"Timeout": func(c *RequesterConfig) { c.Timeout = 0 },
		"TTL":     func(c *RequesterConfig) { c.TTL = time.Millisecond },
		"Batch":   func(c *RequesterConfig) { c.Batch = model.MaxBatch + 1 },
	} {
		c := NewDefaultRequesterConfig("c")
		change(&c)
		err := c.Validate()
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, name)
	}
	require.ErrorIs(t, NewDefaultRequesterConfig("a b").Validate(), ErrGroupName)
}

func TestTypedHelpers(t *testing.T) {
	type order struct{ Item string }
	type bill struct{ Cents int }
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		var told atomic.Int64
		r.run(q, func() SubscriberConfig {
			c := NewDefaultSubscriberConfig(r.topic, "g", Respond(JSON{}, func(_ context.Context, o order, d *Delivery) (bill, error) {
				told.Add(1)
				if o.Item == "" {
					return bill{}, fmt.Errorf("%w: no item", ErrPermanent)
				}
				return bill{Cents: 100 * len(o.Item)}, nil
			}))
			hasty(&c)
			steady(&c)
			return c
		}())
		client := r.requester(q, nil)
		got, err := RequestAs[order, bill](ctx, client, JSON{}, r.topic, order{Item: "tea"}, Message{Key: "k"})
		require.NoError(r.t, err)
		require.Equal(r.t, bill{Cents: 300}, got)
		_, err = RequestAs[order, bill](ctx, client, JSON{}, r.topic, order{}, Message{})
		require.ErrorIs(r.t, err, ErrRemote)
		_, err = RequestAs[order, int](ctx, client, JSON{}, r.topic, order{Item: "x"}, Message{})
		require.ErrorIs(r.t, err, ErrMalformed)
		_, err = RequestAs[func(), bill](ctx, client, JSON{}, r.topic, nil, Message{})
		require.Error(r.t, err)
		receipt, err := Publish(ctx, q.NewProducer(nil), JSON{}, r.topic, order{Item: "pie"}, Message{Headers: map[string]string{HeaderForcePartition: "1"}})
		require.NoError(r.t, err)
		require.Equal(r.t, 1, receipt.Partition)
		r.publish(q, "k", "no JSON")
		eventually(r.t, func() bool { return r.seen.count(EventDead) == 2 && told.Load() == 4 }, "one letter for what failed, one for what is no order")
	})
}

func nameOf(r *Requester) string {
	name, _, _ := produce.Inner(r)
	return name
}

func readyOf(r *Requester) chan struct{} {
	_, ready, _ := produce.Inner(r)
	return ready
}

func openOf(r *Requester) int {
	_, _, open := produce.Inner(r)
	return open
}
