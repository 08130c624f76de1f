package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/telemetry"
)

// The results of outbox_publish_total: each attempt counts once, the last one as dead (contract §8).
const (
	resultSuccess = "success"
	resultFailure = "failure"
	resultDead    = "dead"
)

// metrics are the relay's figures.
type metrics struct {
	published   *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	delay       prometheus.Histogram
	revived     prometheus.Counter
	deadLetters prometheus.Counter
}

// newMetrics registers the figures; a second relay on the same registry shares them.
func newMetrics(reg prometheus.Registerer) *metrics {
	took := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	waited := []float64{.001, .0025, .005, .0075, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	m := &metrics{deadLetters: telemetry.DeadLetters(reg)}
	m.published = telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_publish_total", Help: "Attempts to send an event, by result; the last of an event that is given up is dead."}, []string{"result"}))
	m.seconds = telemetry.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "outbox_publish_seconds", Help: "Time from handing an event to the broker's client to its answer, by result.", Buckets: took}, []string{"result"}))
	m.delay = telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "outbox_publish_delay_seconds", Help: "Time from an event's creation to its mark as sent.", Buckets: waited}))
	m.revived = telemetry.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "outbox_revived_total", Help: "Events that died for want of a broker and were made new again."}))
	for _, result := range []string{resultSuccess, resultFailure, resultDead} {
		m.published.WithLabelValues(result)
		m.seconds.WithLabelValues(result)
	}
	return m
}

// attempt counts one.
func (m *metrics) attempt(result string, took time.Duration) {
	m.published.WithLabelValues(result).Inc()
	m.seconds.WithLabelValues(result).Observe(took.Seconds())
}

// resultOf is the label of a mark.
func resultOf(m Mark) string {
	switch m.To {
	case StatusSent:
		return resultSuccess
	case StatusDead:
		return resultDead
	case StatusNew, StatusRetrying:
	}
	return resultFailure
}

const (
	scrapeTime  = 2 * time.Second // bounds what one scrape may ask of the database
	backlogKeep = 2 * time.Second // how old the backlog's figures may be
)

// backlogCollector asks for the backlog when it is scraped, and not more often than every so often.
type backlogCollector struct {
	stats   *telemetry.Asked[Stats]
	log     *slog.Logger
	backlog *prometheus.Desc
	oldest  *prometheus.Desc
}

// newCollector shows outbox_backlog and the age of its oldest event.
func newCollector(s *Store, log *slog.Logger, now func() time.Time) prometheus.Collector {
	ask := func(ctx context.Context) (Stats, error) { return s.Stats(ctx, StatusNew, StatusRetrying) }
	return backlogCollector{
		stats: &telemetry.Asked[Stats]{Ask: ask, Now: now, Wait: scrapeTime, Keep: backlogKeep}, log: log,
		backlog: prometheus.NewDesc("outbox_backlog", "Events that wait to be sent (NEW and RETRYING), counted up to a million each.", nil, nil),
		oldest:  prometheus.NewDesc("outbox_oldest_age_seconds", "Age of the oldest event that waits to be sent.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c backlogCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.backlog
	ch <- c.oldest
}

// Collect implements prometheus.Collector; while the database does not answer there are no figures.
func (c backlogCollector) Collect(ch chan<- prometheus.Metric) {
	stats, err := c.stats.Get()
	if err != nil {
		c.log.Debug("outbox: backlog", slog.Any("error", err))
		return
	}
	ch <- prometheus.MustNewConstMetric(c.backlog, prometheus.GaugeValue, float64(stats.Backlog()))
	ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, stats.Oldest.Seconds())
}

// tracer is that of this package; asked for anew, since a test may change who provides it.
func tracer() trace.Tracer { return otel.Tracer("github.com/millweir/millweir/pkg/outbox") }

// maxLinks is what the SDK keeps on one span by default.
const maxLinks = 128

// messaging describes events of a topic by the OTel messaging conventions.
func messaging(operation, topic string, n int) trace.SpanStartEventOption {
	attrs := []attribute.KeyValue{
		attribute.String("messaging.system", "kafka"), attribute.String("messaging.destination.name", topic),
		attribute.String("messaging.operation.name", operation), attribute.String("messaging.operation.type", operation),
	}
	if n > 1 {
		attrs = append(attrs, attribute.Int("messaging.batch.message_count", n))
	}
	return trace.WithAttributes(attrs...)
}

// created begins the span of events that are written in a task's transaction, below the context's span if that is recorded.
func created(ctx context.Context, events []newEvent) (end func(error)) {
	if len(events) == 0 || !trace.SpanFromContext(ctx).IsRecording() {
		return func(error) {}
	}
	_, span := tracer().Start(ctx, "create "+events[0].Topic, trace.WithSpanKind(trace.SpanKindProducer), messaging("create", events[0].Topic, len(events)))
	return func(err error) { endSpan(span, err) }
}

// sent begins the span of a batch that goes to the broker: below the only event's trace, or linked to those of many.
func sent(ctx context.Context, events []Event) (_ context.Context, end func(error)) {
	var links []trace.Link
	for _, e := range events {
		if sc := telemetry.SpanContext(e.TraceParent); sc.IsSampled() && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	if len(links) == 0 { // nobody asked for any of these traces
		return ctx, func(error) {}
	}
	if len(events) == 1 {
		ctx, links = telemetry.WithTraceparent(ctx, events[0].TraceParent), nil
	}
	name := events[0].Topic
	ctx, span := tracer().Start(ctx, "send "+name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...), messaging("send", name, len(events)))
	return ctx, func(err error) { endSpan(span, err) }
}

// endSpan ends a span with its result, without secrets.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, telemetry.Redact(err.Error()))
	}
	span.End()
}
