package mq

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/telemetry"
)

// measured are the points of a reader by name: their attributes and what they say.
func measured(t *testing.T, reader *sdkmetric.ManualReader) map[string]map[attribute.Set]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	points := map[string]map[attribute.Set]float64{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, scopeName, scope.Scope.Name)
		for _, m := range scope.Metrics {
			points[m.Name] = map[attribute.Set]float64{}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					points[m.Name][p.Attributes] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					points[m.Name][p.Attributes] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					points[m.Name][p.Attributes] = p.Sum
				}
			default:
				require.Failf(t, "unknown data", "%s is %T", m.Name, data)
			}
		}
	}
	return points
}

func TestQueueMeterFollowsTheConventions(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	q, err := NewMeter(provider)
	require.NoError(t, err)
	member := streammq.Event{Topic: "orders", Partition: 3, Group: "g", Member: "m1", Count: 2}
	whole := member
	whole.Partition = -1
	of := func(e streammq.Event, kind streammq.EventKind) streammq.Event {
		e.Kind = kind
		return e
	}
	handled := of(member, streammq.EventHandled)
	handled.Count, handled.Outcome, handled.Took = 1, streammq.OutcomeRetry, 1500*time.Millisecond
	refused := of(member, streammq.EventRefused)
	refused.Of = streammq.EventAcked
	for _, e := range []streammq.Event{
		{Kind: streammq.EventProduced, Topic: "orders", Partition: 3, Count: 4},
		{Kind: streammq.EventProduced, Topic: "orders", Partition: 3, Count: 1, Err: errors.New("x")},
		of(member, streammq.EventConsumed), of(member, streammq.EventConsumed), handled, of(member, streammq.EventAcked),
		of(member, streammq.EventRetried), of(member, streammq.EventDead), refused, of(member, streammq.EventLost),
		of(whole, streammq.EventOwned), of(whole, streammq.EventUnowned), of(whole, streammq.EventPinConflict),
	} {
		q.Observe(e)
	}
	topic := []attribute.KeyValue{attribute.String("messaging.system", "streammq"), attribute.String("messaging.destination.name", "orders")}
	group := []attribute.KeyValue{attribute.String("messaging.consumer.group.name", "g"), attribute.String("messaging.client.id", "m1")}
	third := attribute.String("messaging.destination.partition.id", "3")
	set := func(kvs ...[]attribute.KeyValue) attribute.Set {
		var all []attribute.KeyValue
		for _, some := range kvs {
			all = append(all, some...)
		}
		return attribute.NewSet(all...)
	}
	word := func(key, value string) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String(key, value)}
	}
	at := []attribute.KeyValue{third}
	got := measured(t, reader)
	for name, want := range map[string]map[attribute.Set]float64{
		"messaging.client.sent.messages":     {set(topic, at): 4, set(topic, at, word("error.type", "failure")): 1},
		"messaging.client.consumed.messages": {set(topic, at, group): 4, set(topic, at, group, word("error.type", "lost")): 2},
		"messaging.process.duration":         {set(topic, at, group, word("error.type", "retry")): 1.5},
		"streammq.acked":                     {set(topic, at, group): 2, set(topic, at, group, word("error.type", "refused")): 2},
		"streammq.retried":                   {set(topic, at, group): 2},
		"streammq.dead":                      {set(topic, at, group): 2},
		"streammq.events": {
			set(topic, at, group, word("streammq.event", "refused")): 2, set(topic, at, group, word("streammq.event", "lost")): 2,
		},
		"streammq.partitions.owned":     {set(topic, group): 2},
		"streammq.partitions.uncovered": {set(topic, group): 2},
		"streammq.pin.conflicts":        {set(topic, group): 2},
	} {
		require.Equal(t, want, got[name], name)
	}
	q.Observe(of(whole, streammq.EventLeft))
	got = measured(t, reader)
	for _, name := range []string{"streammq.partitions.owned", "streammq.partitions.uncovered", "streammq.pin.conflicts"} {
		require.Equal(t, map[attribute.Set]float64{set(topic, group): 0}, got[name], name)
	}
}

// What streammq counts goes out over OTLP as well, and not only to the Prometheus page. Not parallel: the provider is the process's.
func TestQueueFiguresAreExported(t *testing.T) {
	got := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer srv.Close()
	before := otel.GetMeterProvider()
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	reg := prometheus.NewRegistry()
	silent, err := NewObserver(reg)
	require.NoError(t, err)
	require.IsType(t, &Metrics{}, silent, "nothing to pay for")
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", srv.URL+"/v1/metrics")
	shutdown, err := telemetry.Setup(t.Context(), telemetry.SetupOptions{Service: "stream-worker", Version: "v9", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	both, err := NewObserver(reg)
	require.NoError(t, err)
	both.Observe(streammq.Event{Kind: streammq.EventAcked, Topic: "orders", Partition: 3, Group: "g", Member: "m1", Count: 2})
	require.NoError(t, shutdown(context.WithoutCancel(t.Context())))
	sent := <-got
	for _, want := range []string{"/v1/metrics", "streammq.acked", "orders", "m1", "stream-worker"} {
		require.Contains(t, sent, want)
	}
	sum, _ := valueOf(t, reg, "streammq_acked_total", map[string]string{"topic": "orders"})
	require.InDelta(t, 2, sum, 0)
}
