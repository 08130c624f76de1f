package mq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/telemetry"
)

// canary is a secret that no span may show.
const canary = "c4nary-Pa55"

// queueRig is a topic of the test's own on a real Redis, observed.
type queueRig struct {
	mq    *streammq.MQ
	topic string
	reg   *prometheus.Registry
}

func newQueueRig(t *testing.T) *queueRig {
	t.Helper()
	options, err := rueidis.ParseURL(labserver.RedisURL(t))
	require.NoError(t, err)
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	r := &queueRig{topic: "seen-" + rand.Text(), reg: prometheus.NewRegistry()}
	cfg := streammq.NewDefaultConfig()
	cfg.Observer = NewMetrics(r.reg)
	r.mq, err = streammq.New(client, cfg)
	require.NoError(t, err)
	_, err = r.mq.CreateTopic(t.Context(), streammq.Topic{Name: r.topic, Partitions: 1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.mq.Admin(r.topic).Delete(context.Background(), streammq.Removal{Force: true}) })
	return r
}

// run is a member until stop is called, which waits for its end.
func (r *queueRig) run(t *testing.T, h streammq.Handler) (stop func()) {
	t.Helper()
	cfg := streammq.NewDefaultSubscriberConfig(r.topic, "g", h)
	cfg.Member = "m1"
	s, err := r.mq.NewSubscriber(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() { cancel(); require.NoError(t, <-done) }
}

// value sums the series of one name whose labels are among those given.
func (r *queueRig) value(t *testing.T, name string, labels map[string]string) (sum float64, n int) {
	return valueOf(t, r.reg, name, labels)
}

func valueOf(t *testing.T, reg *prometheus.Registry, name string, labels map[string]string) (sum float64, n int) {
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if want, ok := labels[l.GetName()]; ok && want != l.GetValue() {
					continue series
				}
			}
			n++
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, n
}

func TestQueueFiguresAndTheirRemovalWhenAMemberLeaves(t *testing.T) {
	t.Parallel()
	r := newQueueRig(t)
	r.reg.MustRegister(NewCollector(r.mq, slog.New(slog.DiscardHandler), r.topic))
	release := make(chan struct{})
	stop := r.run(t, func(_ context.Context, d *streammq.Delivery) streammq.Result {
		switch string(d.Payload) {
		case "dead":
			return streammq.Fail(errors.New("no use"))
		case "held":
			<-release
		}
		return streammq.Success()
	})
	p := r.mq.NewProducer(nil)
	for _, payload := range []string{"a", "b", "dead", "held"} {
		_, err := p.Publish(t.Context(), r.topic, streammq.Message{Payload: []byte(payload)})
		require.NoError(t, err)
	}
	of := map[string]string{"topic": r.topic, "partition_id": "0", "group": "g", "consumer_id": "m1"}
	want := func(name string, labels map[string]string, sum float64) {
		t.Helper()
		require.Eventually(t, func() bool {
			got, _ := r.value(t, name, labels)
			return got == sum
		}, 3*time.Minute, 20*time.Millisecond, "%s %v", name, labels)
	}
	want("streammq_produced_total", map[string]string{"topic": r.topic, "result": "success"}, 4)
	want("streammq_consumed_total", of, 4)
	want("streammq_dead_total", of, 1)
	want("streammq_partitions_owned", map[string]string{"consumer_id": "m1"}, 1)
	want("streammq_inflight", of, 1)
	want("streammq_pending", of, 1)
	want("streammq_length", of, 4)
	age, _ := r.value(t, "streammq_frontier_age_seconds", of)
	require.Positive(t, age)
	want("streammq_partitions_unowned", of, 0)
	close(release)
	want("streammq_acked_total", of, 3)
	want("streammq_pending", of, 0)
	want("streammq_frontier_age_seconds", of, 0)
	handled, _ := r.value(t, "streammq_handle_seconds", map[string]string{"result": "success"})
	require.InDelta(t, 3, handled, 0)
	delays, _ := r.value(t, "streammq_ack_delay_seconds", of)
	require.Positive(t, delays)

	stop()
	families, err := r.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				require.False(t, l.GetName() == "consumer_id" && l.GetValue() == "m1", "%s still has a series of the member that left", f.GetName())
			}
		}
	}
	produced, _ := r.value(t, "streammq_produced_total", map[string]string{"topic": r.topic})
	require.InDelta(t, 4, produced, 0, "what is no member's stays")

	// The same member comes again: it counts from zero.
	stop = r.run(t, func(context.Context, *streammq.Delivery) streammq.Result {
		return streammq.RetryAfter(time.Hour, errors.New("later")) // a second retry might come before the first is seen
	})
	_, err = p.Publish(t.Context(), r.topic, streammq.Message{Payload: []byte("c"), MaxAttempts: 9})
	require.NoError(t, err)
	want("streammq_retried_total", of, 1)
	consumed, _ := r.value(t, "streammq_consumed_total", of)
	require.GreaterOrEqual(t, consumed, 1.0)
	stop()
}

func TestQueueEventsOfAllKindsAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, again := NewMetrics(reg), NewMetrics(reg)
	for _, o := range []streammq.Observer{m, again} {
		o.Observe(streammq.Event{Kind: streammq.EventProduced, Topic: "t", Partition: 3, Count: 1, Err: errors.New("x")})
		member := streammq.Event{Topic: "t", Partition: 3, Group: "g", Member: "m1", Count: 1}
		for _, kind := range []streammq.EventKind{streammq.EventAcked, streammq.EventRetried, streammq.EventDead} {
			member.Kind, member.Of = kind, ""
			o.Observe(member)
			for _, member.Kind = range []streammq.EventKind{streammq.EventRefused, streammq.EventFailed} {
				member.Of = kind
				o.Observe(member)
			}
		}
		member.Of = ""
		for _, member.Kind = range []streammq.EventKind{streammq.EventConsumed, streammq.EventLost} {
			o.Observe(member)
		}
		o.Observe(streammq.Event{Kind: streammq.EventTrimmed, Topic: "t", Partition: 3, Count: 5})
		o.Observe(streammq.Event{Kind: streammq.EventUnowned, Topic: "t", Partition: -1, Group: "g", Member: "m1", Count: 7})
		o.Observe(streammq.Event{Kind: streammq.EventPinConflict, Topic: "t", Partition: -1, Group: "g", Member: "m1", Count: 2})
	}
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP streammq_events_total Everything else that happens: dropped, refused, lost, moved, quarantined, trimmed, zombie, healed, replied, …
# TYPE streammq_events_total counter
streammq_events_total{group="",kind="trimmed",topic="t"} 10
streammq_events_total{group="g",kind="failed",topic="t"} 6
streammq_events_total{group="g",kind="lost",topic="t"} 2
streammq_events_total{group="g",kind="refused",topic="t"} 6
# HELP streammq_partitions_uncovered Partitions that the caps of all members leave over, as a member saw it last.
# TYPE streammq_partitions_uncovered gauge
streammq_partitions_uncovered{consumer_id="m1",group="g",topic="t"} 7
# HELP streammq_pin_conflicts Partitions that more than one live member has pinned, as a member saw it last.
# TYPE streammq_pin_conflicts gauge
streammq_pin_conflicts{consumer_id="m1",group="g",topic="t"} 2
# HELP streammq_produced_total Messages added by producers, by result.
# TYPE streammq_produced_total counter
streammq_produced_total{partition_id="3",result="failure",topic="t"} 2
`), "streammq_events_total", "streammq_produced_total", "streammq_partitions_uncovered", "streammq_pin_conflicts"))
	for name, results := range map[string][]string{
		"produced": {"failure"}, "consumed": {"success", "lost"}, "acked": {"success", "refused", "failure"},
		"retried": {"success", "refused", "failure"}, "dead": {"success", "refused", "failure"},
	} {
		for _, result := range results {
			sum, n := valueOf(t, reg, "streammq_"+name+"_total", map[string]string{"partition_id": "3", "result": result})
			require.Equal(t, 1, n, "%s %s", name, result)
			require.InDelta(t, 2, sum, 0, "%s %s", name, result)
		}
	}
	m.Observe(streammq.Event{Kind: streammq.EventLeft, Topic: "t", Partition: -1, Group: "g", Member: "m1", Count: 1})
	for _, name := range []string{
		"streammq_partitions_uncovered", "streammq_pin_conflicts", "streammq_consumed_total", "streammq_acked_total", "streammq_retried_total",
		"streammq_dead_total",
	} {
		n, err := testutil.GatherAndCount(reg, name)
		require.NoError(t, err)
		require.Zero(t, n, "%s still has a series of the member that left", name)
	}
}

func TestStableNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"worker-1-0190a6e0-0000-7000-8000-000000000001": "worker-1", "worker": "worker", "-0190a6e0-0000-7000-8000-000000000001": "-0190a6e0-0000-7000-8000-000000000001",
	} {
		require.Equal(t, want, stableName(name))
	}
}

// A message's run, and its retry, link to the span that published it.
func TestQueueSpansAreLinked(t *testing.T) {
	t.Parallel()
	r := newQueueRig(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	tracing := NewTracing(provider)
	ended := make(chan struct{}, 2)
	stop := r.run(t, tracing.Handler(func(_ context.Context, d *streammq.Delivery) streammq.Result {
		defer func() { ended <- struct{}{} }()
		if d.Attempt == 1 {
			return streammq.RetryAfter(0, errors.New("password="+canary))
		}
		return streammq.Success()
	}))
	headers := map[string]string{"mine": "1"}
	_, err := tracing.Publish(t.Context(), r.mq.NewProducer(nil), r.topic, streammq.Message{Payload: []byte("x"), Headers: headers})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"mine": "1"}, headers, "the caller's are left alone")
	for range 2 {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			require.Fail(t, "not run twice")
		}
	}
	stop()
	_, err = tracing.Publish(t.Context(), r.mq.NewProducer(nil), "no such topic", streammq.Message{})
	require.Error(t, err)
	all := spans.Ended()
	require.Len(t, all, 4)
	// A message may be run before its publisher's span ends.
	slices.SortStableFunc(all[:3], func(a, b sdktrace.ReadOnlySpan) int { return -strings.Compare(a.Name(), b.Name()) })
	require.Equal(t, "send "+r.topic, all[0].Name())
	for _, run := range all[1:3] {
		require.Equal(t, "process "+r.topic, run.Name())
		require.Len(t, run.Links(), 1)
		require.Equal(t, all[0].SpanContext().SpanID(), run.Links()[0].SpanContext.SpanID())
		require.NotContains(t, fmt.Sprint(run.Attributes(), run.Status(), run.Events()), canary)
	}
	require.Equal(t, "Error", all[1].Status().Code.String())
	require.Equal(t, "Error", all[3].Status().Code.String())
}

// A batch and a poll are one span each, linked to the traces of their messages; a message alone continues its own.
func TestQueueSpansOfManyMessages(t *testing.T) {
	t.Parallel()
	r := newQueueRig(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	tracing := NewTracing(provider)
	const a, b = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-5bf92f3577b34da6a3ce929d0e0e4736-10f067aa0ba902b7-01"
	carrying := func(parent string) streammq.Message {
		return streammq.Message{Payload: []byte("x"), Headers: map[string]string{telemetry.KeyTraceparent: parent}}
	}
	p := r.mq.NewProducer(nil)
	for _, ms := range [][]streammq.Message{{carrying(a), carrying(b)}, {carrying(a)}} {
		_, err := tracing.PublishBatch(t.Context(), p, r.topic, ms)
		require.NoError(t, err)
	}
	_, err := tracing.PublishBatch(t.Context(), p, "no such topic", []streammq.Message{carrying(b)})
	require.Error(t, err)
	c, err := r.mq.NewConsumer(streammq.NewDefaultConsumerConfig(r.topic, "g"))
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	tracing.Received(ctx, time.Now(), nil)
	began := time.Now()
	var got []*streammq.Delivery
	for len(got) < 3 {
		some, err := c.Poll(ctx, 3-len(got), time.Second)
		require.NoError(t, err)
		got = append(got, some...)
	}
	tracing.Received(ctx, began, got)
	stop()
	require.NoError(t, <-done)

	linked := func(s sdktrace.ReadOnlySpan) (traces []string) {
		for _, l := range s.Links() {
			traces = append(traces, l.SpanContext.TraceID().String())
		}
		return traces
	}
	all := spans.Ended()
	require.Len(t, all, 4, "nothing received is no span")
	require.Equal(t, "send "+r.topic, all[0].Name())
	require.Equal(t, []string{a[3:35], b[3:35]}, linked(all[0]))
	require.Equal(t, a[3:35], all[1].SpanContext().TraceID().String())
	require.Equal(t, "Error", all[2].Status().Code.String())
	require.Equal(t, "receive "+r.topic, all[3].Name())
	require.Equal(t, []string{a[3:35], b[3:35], a[3:35]}, linked(all[3]))
}
