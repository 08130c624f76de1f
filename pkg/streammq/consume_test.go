package streammq

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
)

// hastyLease is short for what waits for its end, and outlasts what a busy machine keeps a renewal waiting.
const hastyLease = 3 * time.Second

// mortal has a lease whose end a test can wait for.
func mortal(c *SubscriberConfig) { c.Lease = hastyLease }

// hastyIdle is the same for the idle time after which entries are claimed: at 400 ms a member that stood still for half a second
// was robbed, as it has to be, and its message ran once more.
const hastyIdle = 2 * time.Second

// hasty makes the intervals of a subscriber short, but for its lease: nobody is to lose that on a busy machine.
func hasty(c *SubscriberConfig) {
	steady(c)
	c.Renew, c.Rebalance, c.Poll = 150*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	c.MoverEvery, c.TrimEvery, c.PendingScan = 50*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	c.StopTimeout = waitLimit / 3 // a stop that stands still for seconds still ends what runs, and leaves
	c.Retry = RetryPolicy{Backoff: 20 * time.Millisecond, MaxBackoff: 100 * time.Millisecond}
}

// running is a subscriber whose Run was called.
type running struct {
	*Subscriber
	t      testing.TB
	cancel context.CancelFunc
	done   chan error
}

// end stops it as an orderly process would.
func (s *running) end() {
	s.t.Helper()
	s.cancel()
	select {
	case err := <-s.done:
		require.NoError(s.t, err)
	case <-time.After(waitLimit):
		s.t.Fatal("Run does not return")
	}
	s.done <- nil
}

func (r *rig) run(q *MQ, cfg SubscriberConfig) *running {
	r.t.Helper()
	s, err := q.NewSubscriber(cfg)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	sub := &running{Subscriber: s, t: r.t, cancel: cancel, done: make(chan error, 1)}
	go func() { sub.done <- s.Run(ctx) }()
	r.t.Cleanup(sub.end)
	return sub
}

// subscribe runs a hasty member of group "g"; change may be nil.
func (r *rig) subscribe(q *MQ, handler Handler, change func(*SubscriberConfig)) *running {
	r.t.Helper()
	cfg := NewDefaultSubscriberConfig(r.topic, "g", handler)
	hasty(&cfg)
	if change != nil {
		change(&cfg)
	}
	return r.run(q, cfg)
}

// log is what handlers have seen.
type log struct {
	mu   sync.Mutex
	seen []Delivery
}

func (l *log) add(d *Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, *d)
}

func (l *log) all() []Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Delivery(nil), l.seen...)
}

func (l *log) payloads() []string {
	var p []string
	for _, d := range l.all() {
		p = append(p, string(d.Payload))
	}
	return p
}

func (l *log) handler(result func(d *Delivery) Result) Handler {
	return func(_ context.Context, d *Delivery) Result {
		l.add(d)
		return result(d)
	}
}

func succeed(*Delivery) Result { return Success() }

func TestMessagesAreRunOnceInTheOrderOfTheirKey(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 4)
		var pairs []string
		for i := range 200 {
			pairs = append(pairs, "key-"+strconv.Itoa(i%9), strconv.Itoa(i))
		}
		r.publish(q, pairs...)
		members := []*running{r.subscribe(q, seen.handler(succeed), nil), r.subscribe(q, seen.handler(succeed), nil)}
		r.publish(q, pairs...)
		eventually(r.t, func() bool { return len(seen.all()) >= 400 }, "all messages")
		for _, m := range members {
			m.end()
		}
		require.Len(r.t, seen.all(), 400)
		last := map[string]int{}
		for _, d := range seen.all() {
			n, err := strconv.Atoi(string(d.Payload))
			require.NoError(r.t, err)
			require.True(r.t, n > last[d.Key] || n < 9, "key %s: %d after %d", d.Key, n, last[d.Key])
			last[d.Key] = n
			require.Equal(r.t, 1, d.Attempt)
			require.NotEmpty(r.t, d.UUID)
			require.Equal(r.t, r.topic, d.Topic)
		}
		for partition := range 4 {
			require.Zero(r.t, r.pending(partition, "g"))
		}
		r.told(EventAcked, 400)
	})
}

func TestPartitionsAreSharedEvenlyAsMembersComeAndGo(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 7)
		shares := func(members ...*running) func() bool {
			return func() bool {
				sum := 0
				for _, m := range members {
					n := len(m.Partitions())
					if n < 7/len(members) || n > (7+len(members)-1)/len(members) {
						return false
					}
					sum += n
				}
				return sum == 7
			}
		}
		a := r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, shares(a), "one member owns all")
		b := r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, shares(a, b), "a late member gets its share")
		c := r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, shares(a, b, c), "and a third")
		b.end()
		eventually(r.t, shares(a, c), "one left")
	})
}

// A member that dies keeps its lease until it expires; then another goes on with what it had.
func TestDeadMembersMessagesAreTakenOver(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		receipts := r.publish(q, "k", "0", "k", "1", "k", "2")
		// Another process had the partition, read all, and is gone.
		dead := r.member(q, "dead")
		_, err := dead.Fetch(r.t.Context(), 10)
		require.NoError(r.t, err)
		r.do("PEXPIRE", dead.Src.Lease("g"), "300")
		r.publish(q, "k", "3")
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 4 }, "all")
		require.Equal(r.t, []string{"0", "1", "2", "3"}, seen.payloads(), "pending ones first")
		require.Equal(r.t, receipts[0].ID, seen.all()[0].ID)
		require.EqualValues(r.t, 2, seen.all()[0].Deliveries)
		require.EqualValues(r.t, 1, seen.all()[3].Deliveries)
		eventually(r.t, func() bool { return r.pending(0, "g") == 0 }, "acknowledged")
	})
}

func TestNewPartitionsArePickedUp(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		m := r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.Start = "$" })
		eventually(r.t, func() bool { return len(m.Partitions()) == 1 }, "first")
		r.topicOf(q, 3)
		_, err := q.NewProducer(NewRoundRobin()).PublishBatch(r.t.Context(), r.topic, make([]Message, 9))
		require.NoError(r.t, err)
		eventually(r.t, func() bool { return len(seen.all()) == 9 }, "also what was published before they were seen")
		require.Len(r.t, m.Partitions(), 3)
	})
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	m := r.subscribe(q, seen.handler(succeed), nil)
	r.publish(q, "", "0")
	eventually(t, func() bool { return len(seen.all()) == 1 }, "it runs")
	m.Pause()
	eventually(t, func() bool { return idle(m.Subscriber) }, "the loop waits")
	r.publish(q, "", "1")
	require.Len(t, m.Partitions(), 1, "the lease is kept")
	require.Never(t, func() bool { return len(seen.all()) > 1 }, 300*time.Millisecond, 20*time.Millisecond)
	m.Resume()
	eventually(t, func() bool { return len(seen.all()) == 2 }, "it goes on")
}

// idle tells that no worker is in Redis: a paused loop may have been reading when Pause was called.
func idle(s *Subscriber) bool {
	for _, w := range consume.Owned(s) {
		if !w.Resting.Load() {
			return false
		}
	}
	return true
}

// An orderly stop ends the running message, and leaves the others of its batch to the next owner at once.
func TestStopFinishesAndHandsBack(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		r.publish(q, "k", "0", "k", "1", "k", "2")
		began, goOn := make(chan struct{}), make(chan struct{})
		first := r.subscribe(q, func(_ context.Context, d *Delivery) Result {
			seen.add(d)
			close(began)
			<-goOn
			return Success()
		}, nil)
		<-began
		first.cancel()
		eventually(r.t, func() bool { return consume.Owned(first.Subscriber)[0].Stopped() }, "it knows")
		close(goOn)
		first.end()
		require.Equal(r.t, []string{"0"}, seen.payloads())
		require.Equal(r.t, 2, r.pending(0, "g"))
		require.Zero(r.t, r.number("EXISTS", r.source(0).Lease("g")), "no lease to wait for")
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 3 }, "the rest")
		require.Equal(r.t, []string{"0", "1", "2"}, seen.payloads())
	})
}

func TestLeaseIsRenewedWhileAHandlerRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	r.publish(q, "k", "0")
	goOn := make(chan struct{})
	handler := func(ctx context.Context, d *Delivery) Result {
		seen.add(d)
		<-goOn
		return FromError(ctx.Err())
	}
	const lease = 3 * hastyLease // whose renewals a machine that stands still for seconds does not miss
	leased := func(c *SubscriberConfig) { c.Lease = lease }
	r.subscribe(q, handler, leased)
	eventually(t, func() bool { return len(seen.all()) == 1 }, "it runs")
	r.subscribe(q, handler, leased)
	require.Never(t, func() bool { return len(seen.all()) > 1 }, lease+time.Second, 50*time.Millisecond, "longer than a lease")
	close(goOn)
	eventually(t, func() bool { return r.pending(0, "g") == 0 }, "its acknowledgement is good")
	require.Zero(t, r.seen.count(EventRetried))
}

func TestMaxInFlightBoundsHandlers(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 8)
	var mu sync.Mutex
	now, most, total := 0, 0, 0
	r.subscribe(q, func(context.Context, *Delivery) Result {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		defer func() {
			mu.Lock()
			now, total = now-1, total+1
			mu.Unlock()
		}()
		return FromError(wait(time.Millisecond))
	}, func(c *SubscriberConfig) { c.MaxInFlight = 2 })
	_, err := q.NewProducer(nil).PublishBatch(t.Context(), r.topic, make([]Message, 200))
	require.NoError(t, err)
	eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return total == 200 }, "all")
	require.Equal(t, 2, most)
}

// wait is work of a known length.
func wait(d time.Duration) error {
	<-time.After(d)
	return nil
}

func TestCapsLeavePartitionsUnowned(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 5)
	m := r.subscribe(q, (&log{}).handler(succeed), func(c *SubscriberConfig) { c.Cap = 3 })
	eventually(t, func() bool { return len(m.Partitions()) == 3 && r.seen.count(EventUnowned) > 0 }, "its cap")
}

func TestUnknownTopicEndsRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	s, err := r.mq(nil).NewSubscriber(NewDefaultSubscriberConfig("never-made", "g", (&log{}).handler(succeed)))
	require.NoError(t, err)
	require.ErrorIs(t, s.Run(t.Context()), ErrUnknownTopic)
}

func TestSubscriberConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	good := NewDefaultSubscriberConfig("t", "g", (&log{}).handler(succeed))
	require.NoError(t, good.Validate())
	require.NoError(t, NewDefaultStreamConfig("asr-tasks", "g", "c", good.Handler).Validate())
	for name, change := range map[string]func(*SubscriberConfig){
		"one of Topic": func(c *SubscriberConfig) { c.StreamKey = "s" }, "bad topic": func(c *SubscriberConfig) { c.Topic = "a b" },
		"bad group": func(c *SubscriberConfig) { c.Group = "" }, "Handler": func(c *SubscriberConfig) { c.Handler = nil },
		"Role": func(c *SubscriberConfig) { c.Role = RoleBoth }, "Batch 1001": func(c *SubscriberConfig) { c.Batch = 1001 },
		"Concurrency 0": func(c *SubscriberConfig) { c.Concurrency = 0 },
		"Lease":         func(c *SubscriberConfig) { c.Renew = c.Lease }, "Poll": func(c *SubscriberConfig) { c.Poll = 0 },
		"RetryMode": func(c *SubscriberConfig) { c.RetryMode = "x" }, "Retry.Backoff": func(c *SubscriberConfig) { c.Retry.Backoff = time.Hour },
		"Retry.Jitter": func(c *SubscriberConfig) { c.Retry.Jitter = "x" }, "DeadLetters": func(c *SubscriberConfig) { c.DeadLetters = "" },
		"Cap": func(c *SubscriberConfig) { c.Cap = -1 }, "Retention": func(c *SubscriberConfig) { c.Retention.MaxLen = -1 },
		"Start": func(c *SubscriberConfig) { c.Start = "" }, "HandlerTimeout": func(c *SubscriberConfig) { c.HandlerTimeout = -1 },
		"Start \"newest\"": func(c *SubscriberConfig) { c.Start = "newest" }, "Batch 0": func(c *SubscriberConfig) { c.Batch = 0 },
		"ClaimBatch 0": func(c *SubscriberConfig) { c.ClaimBatch = 0 }, "MoverBatch 0": func(c *SubscriberConfig) { c.MoverBatch = 0 },
		"MaxInFlight -1": func(c *SubscriberConfig) { c.MaxInFlight = -1 }, "Renew 0s": func(c *SubscriberConfig) { c.Renew = 0 },
		"Lease 0s": func(c *SubscriberConfig) { c.Lease = 0 }, "Rebalance 0s": func(c *SubscriberConfig) { c.Rebalance = 0 },
		"PendingScan 0s": func(c *SubscriberConfig) { c.PendingScan = 0 }, "ClaimIdle 0s": func(c *SubscriberConfig) { c.ClaimIdle = 0 },
		"MoverEvery 0s": func(c *SubscriberConfig) { c.MoverEvery = 0 }, "TrimEvery 0s": func(c *SubscriberConfig) { c.TrimEvery = 0 },
		"StopTimeout 0s": func(c *SubscriberConfig) { c.StopTimeout = 0 }, "Retry.Backoff -1ns": func(c *SubscriberConfig) { c.Retry.Backoff = -1 },
		"MaxBackoff 999ms":                func(c *SubscriberConfig) { c.Retry.MaxBackoff = 999 * time.Millisecond },
		"Retry.MaxAttempts":               func(c *SubscriberConfig) { c.Retry.MaxAttempts = -1 },
		"MaxUnanswered -1":                func(c *SubscriberConfig) { c.MaxUnanswered = -1 },
		"Retention {MaxLen:0 MaxAge:-1ns": func(c *SubscriberConfig) { c.Retention = Retention{MaxAge: -1} },
		"DeadLetterRetention {MaxLen:-1":  func(c *SubscriberConfig) { c.DeadLetterRetention = Retention{MaxLen: -1} },
		"Delete \"x\"":                    func(c *SubscriberConfig) { c.Delete = "x" }, "bad stream key": func(c *SubscriberConfig) { c.DeadLetterStream = " " },
		"bad group or member": func(c *SubscriberConfig) { c.Member = "" },
	} {
		c := good
		change(&c)
		err := c.Validate()
		require.ErrorContains(t, err, name)
		require.True(t, errors.Is(err, ErrConfig) || errors.Is(err, ErrTopicName) || errors.Is(err, ErrGroupName) || errors.Is(err, ErrStreamKey), name)
	}
}

// Zero is a value where it means something: no delay, no bound, nothing trimmed.
func TestZeroMeansNoDelayAndNoBound(t *testing.T) {
	t.Parallel()
	c := NewDefaultSubscriberConfig("t", "g", (&log{}).handler(succeed))
	c.Retry, c.MaxInFlight, c.Cap, c.MaxUnanswered, c.HandlerTimeout = RetryPolicy{}, 0, 0, 0, 0
	c.Retention, c.DeadLetterRetention, c.Janitor = Retention{}, Retention{}, JanitorConfig{}
	require.NoError(t, c.Validate())
	for _, start := range []string{"0", "$", "0-0", "1700000000000-5"} {
		c.Start = start
		require.NoError(t, c.Validate(), start)
	}
}

// Who is stopped before it began takes nothing, and a subscriber runs once: another goes on with the same configuration.
func TestRunOfAnEndedContext(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 2)
		r.publish(q, "k", "0")
		cfg := NewDefaultSubscriberConfig(r.topic, "g", seen.handler(succeed))
		hasty(&cfg)
		s, err := q.NewSubscriber(cfg)
		require.NoError(r.t, err)
		require.Empty(r.t, s.Partitions())
		ended, cancel := context.WithCancel(r.t.Context())
		cancel()
		require.NoError(r.t, s.Run(ended))
		require.ErrorIs(r.t, s.Run(r.t.Context()), ErrRunning)
		require.Empty(r.t, s.Partitions())
		require.Empty(r.t, seen.all())
		for i := range 2 {
			require.Zero(r.t, r.number("EXISTS", r.source(i).Lease("g")), "no lease to wait for")
		}
		r.run(q, cfg)
		eventually(r.t, func() bool { return len(seen.all()) == 1 }, "the next one")
	})
}

// Subscribers of two topics share one queue and are told nothing of each other: one ends, the other works on.
func TestTopicsAreConsumedEachByItself(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, other := r.mq(nil), &log{}, &log{}
		two := r.another()
		r.topicOf(q, 2)
		two.home, two.client = r.home, r.client // the same server
		two.topicOf(q, 2)
		first := r.subscribe(q, seen.handler(succeed), nil)
		two.subscribe(q, other.handler(succeed), nil)
		r.publish(q, "k", "0")
		two.publish(q, "k", "a")
		eventually(r.t, func() bool { return len(seen.all()) == 1 && len(other.all()) == 1 }, "both")
		first.end()
		require.Empty(r.t, first.Partitions())
		r.publish(q, "k", "1")
		two.publish(q, "k", "b")
		eventually(r.t, func() bool { return len(other.all()) == 2 }, "the other works on")
		require.Equal(r.t, []string{"0"}, seen.payloads())
		require.Equal(r.t, []string{"a", "b"}, other.payloads())
		r.told(EventLeft, 1)
	})
}
