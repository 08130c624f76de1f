package mq

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millweir/millweir/pkg/streammq"
)

// Meter counts what streammq does as OTel metrics, by the messaging conventions where they have a name, for programs that
// export those instead of a Prometheus page. It implements streammq.Observer.
type Meter struct {
	counters map[streammq.EventKind]metric.Int64Counter
	gauges   map[streammq.EventKind]metric.Int64Gauge
	events   metric.Int64Counter // all others
	process  metric.Float64Histogram
}

var _ streammq.Observer = (*Meter)(nil)

// NewMeter makes the instruments. Its errors are the provider's.
func NewMeter(p metric.MeterProvider) (*Meter, error) {
	meter := p.Meter(scopeName)
	var errs []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, help string) metric.Int64Gauge {
		g, err := meter.Int64Gauge(name, metric.WithUnit("{partition}"), metric.WithDescription(help))
		errs = append(errs, err)
		return g
	}
	process, err := meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"), metric.WithDescription("Time of handlers."))
	q := &Meter{
		counters: map[streammq.EventKind]metric.Int64Counter{
			streammq.EventProduced: counter("messaging.client.sent.messages", "{message}", "Messages added by producers."),
			streammq.EventConsumed: counter("messaging.client.consumed.messages", "{message}", "Messages read for a handler."),
			streammq.EventAcked:    counter("streammq.acked", "{message}", "Entries acknowledged."),
			streammq.EventRetried:  counter("streammq.retried", "{message}", "Entries put off after a failure."),
			streammq.EventDead:     counter("streammq.dead", "{message}", "Entries that became dead letters."),
		},
		gauges: map[streammq.EventKind]metric.Int64Gauge{
			streammq.EventOwned:       gauge("streammq.partitions.owned", "Partitions that a member owns now."),
			streammq.EventUnowned:     gauge("streammq.partitions.uncovered", "Partitions that the caps of all members leave over."),
			streammq.EventPinConflict: gauge("streammq.pin.conflicts", "Partitions that more than one live member has pinned."),
		},
		events:  counter("streammq.events", "{event}", "Everything else that happens, by its kind."),
		process: process,
	}
	return q, errors.Join(append(errs, err)...)
}

// Observe implements streammq.Observer.
func (q *Meter) Observe(e streammq.Event) {
	ctx := context.Background() // an event has none: what is counted is no part of a trace
	n, where := int64(e.Count), metric.WithAttributeSet(attribute.NewSet(placeOf(e)...))
	counter, counted := q.counters[e.Kind]
	gauge, measured := q.gauges[e.Kind]
	switch {
	case counted:
		counter.Add(ctx, n, where)
	case measured:
		gauge.Record(ctx, n, where)
	case e.Kind == streammq.EventHandled:
		q.process.Record(ctx, e.Took.Seconds(), where)
	case e.Kind == streammq.EventLeft:
		for _, g := range q.gauges {
			g.Record(ctx, 0, where) // a series cannot be taken back
		}
	default:
		q.events.Add(ctx, n, where, metric.WithAttributes(attribute.String("streammq.event", string(e.Kind))))
		q.missed(ctx, e)
	}
}

// missed counts what was refused, failed or lost among what it was to be, by error.type.
func (q *Meter) missed(ctx context.Context, e streammq.Event) {
	of := e.Of
	if e.Kind == streammq.EventLost {
		of = streammq.EventConsumed
	}
	if counter, ok := q.counters[of]; ok {
		counter.Add(ctx, int64(e.Count), metric.WithAttributes(append(placeOf(e), attribute.String("error.type", resultOf(e)))...))
	}
}

// placeOf are the attributes of an event; error.type is the result of a failed publish, and the outcome of a failed run.
func placeOf(e streammq.Event) []attribute.KeyValue {
	kvs := destination(e.Topic)
	if e.Partition >= 0 {
		kvs = append(kvs, partitionOf(e.Partition))
	}
	if e.Group != "" {
		kvs = append(kvs, attribute.String("messaging.consumer.group.name", e.Group))
	}
	if e.Member != "" {
		kvs = append(kvs, attribute.String("messaging.client.id", e.Member))
	}
	switch {
	case e.Kind == streammq.EventHandled && e.Outcome != streammq.OutcomeSuccess && e.Outcome != streammq.OutcomeSettled:
		kvs = append(kvs, attribute.String("error.type", string(e.Outcome)))
	case e.Kind == streammq.EventProduced && e.Err != nil:
		kvs = append(kvs, attribute.String("error.type", resultOf(e)))
	}
	return kvs
}
