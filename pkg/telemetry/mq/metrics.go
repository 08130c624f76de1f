package mq

import (
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	labelTopic     = "topic"
	labelPartition = "partition_id" // "": the whole topic
	labelGroup     = "group"
	labelConsumer  = "consumer_id" // the member's stable name, not the one of its start
	labelResult    = "result"
)

// Metrics counts what streammq does (contract §8). It implements streammq.Observer.
// Series of a member are removed when its Run ends.
type Metrics struct {
	produced, events *prometheus.CounterVec
	counters         map[streammq.EventKind]*prometheus.CounterVec // of members, by result
	handle, ackDelay *prometheus.HistogramVec
	gauges           map[streammq.EventKind]*prometheus.GaugeVec

	series sync.Map // seriesKey → *series: a label lookup for every message would cost more than the message
}

var _ streammq.Observer = (*Metrics)(nil)

// NewMetrics registers the figures on reg; nil registers nothing. A second one on the same reg counts together with the first.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(what, help string, labels ...string) *prometheus.CounterVec {
		return telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "streammq_" + what + "_total", Help: help}, labels))
	}
	histogram := func(what, help string, labels ...string) *prometheus.HistogramVec {
		return telemetry.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "streammq_" + what + "_seconds", Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10), // 0.5 ms … 131 s
		}, labels))
	}
	gauge := func(what, help string) *prometheus.GaugeVec {
		return telemetry.Register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "streammq_" + what, Help: help},
			[]string{labelTopic, labelGroup, labelConsumer}))
	}
	member := []string{labelTopic, labelPartition, labelGroup, labelConsumer}
	result := append(slices.Clone(member), labelResult)
	return &Metrics{
		produced: counter("produced", "Messages added by producers, by result.", labelTopic, labelPartition, labelResult),
		counters: map[streammq.EventKind]*prometheus.CounterVec{
			streammq.EventConsumed: counter("consumed", "Messages read for a handler: success, or lost when their data was gone.", result...),
			streammq.EventAcked: counter("acked",
				"Entries acknowledged, by result: success, refused (another member has them) or failure.", result...),
			streammq.EventRetried: counter("retried", "Entries put off after a failure, by result.", result...),
			streammq.EventDead:    counter("dead", "Entries that became dead letters, by result.", result...),
		},
		events: counter("events", "Everything else that happens: dropped, refused, lost, moved, quarantined, trimmed, zombie, healed, replied, …",
			labelTopic, labelGroup, "kind"),
		handle:   histogram("handle", "Time of handlers, by their outcome.", result...),
		ackDelay: histogram("ack_delay", "Time from the first success of a batch to its acknowledgement.", member...),
		gauges: map[streammq.EventKind]*prometheus.GaugeVec{
			streammq.EventOwned:       gauge("partitions_owned", "Partitions that a member owns now."),
			streammq.EventUnowned:     gauge("partitions_uncovered", "Partitions that the caps of all members leave over, as a member saw it last."),
			streammq.EventPinConflict: gauge("pin_conflicts", "Partitions that more than one live member has pinned, as a member saw it last."),
		},
	}
}

// seriesKey is where an event happened.
type seriesKey struct {
	kind, of             streammq.EventKind
	topic, group, member string
	partition            int
	result               string
}

// series is what one kind of event at one place counts; nil fields are not of that kind.
type series struct {
	counter, event prometheus.Counter
	time           prometheus.Observer
}

// Observe implements streammq.Observer.
func (q *Metrics) Observe(e streammq.Event) {
	if g, ok := q.gauges[e.Kind]; ok {
		g.WithLabelValues(e.Topic, e.Group, e.Member).Set(float64(e.Count))
		return
	}
	if e.Kind == streammq.EventLeft {
		q.forget(e)
		return
	}
	key := seriesKey{kind: e.Kind, of: e.Of, topic: e.Topic, group: e.Group, member: e.Member, partition: e.Partition, result: resultOf(e)}
	found, ok := q.series.Load(key)
	if !ok {
		found, _ = q.series.LoadOrStore(key, q.open(key))
	}
	s, _ := found.(*series) // nothing else is in there
	if s.counter != nil {
		s.counter.Add(float64(e.Count))
	}
	if s.event != nil {
		s.event.Add(float64(e.Count))
	}
	if s.time != nil && e.Count > 0 {
		s.time.Observe(e.Took.Seconds())
	}
}

// resultOf is the label result of an event.
func resultOf(e streammq.Event) string {
	switch {
	case e.Kind == streammq.EventHandled:
		return string(e.Outcome)
	case e.Kind == streammq.EventRefused, e.Kind == streammq.EventLost:
		return string(e.Kind)
	case e.Err != nil, e.Kind == streammq.EventFailed:
		return "failure"
	}
	return "success"
}

// open finds the series of a key.
func (q *Metrics) open(k seriesKey) *series {
	partition := partitionLabel(k.partition)
	of := func(kind streammq.EventKind) prometheus.Counter {
		if v, ok := q.counters[kind]; ok {
			return v.WithLabelValues(k.topic, partition, k.group, k.member, k.result)
		}
		return nil
	}
	switch k.kind {
	case streammq.EventProduced:
		return &series{counter: q.produced.WithLabelValues(k.topic, partition, k.result)}
	case streammq.EventHandled:
		return &series{time: q.handle.WithLabelValues(k.topic, partition, k.group, k.member, k.result)}
	case streammq.EventAcked:
		return &series{counter: of(k.kind), time: q.ackDelay.WithLabelValues(k.topic, partition, k.group, k.member)}
	case streammq.EventConsumed, streammq.EventRetried, streammq.EventDead:
		return &series{counter: of(k.kind)}
	case streammq.EventLost:
		k.of = streammq.EventConsumed
	default:
	}
	// What did not succeed counts where it was to be.
	return &series{event: q.events.WithLabelValues(k.topic, k.group, string(k.kind)), counter: of(k.of)}
}

// partitionLabel is empty for the whole topic.
func partitionLabel(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// forget removes what a member that left has counted under its name.
func (q *Metrics) forget(e streammq.Event) {
	gone := prometheus.Labels{labelTopic: e.Topic, labelGroup: e.Group, labelConsumer: e.Member}
	q.series.Range(func(key, _ any) bool {
		if k, ok := key.(seriesKey); ok && k.topic == e.Topic && k.group == e.Group && k.member == e.Member {
			q.series.Delete(key)
		}
		return true
	})
	q.handle.DeletePartialMatch(gone)
	q.ackDelay.DeletePartialMatch(gone)
	for _, v := range q.counters {
		v.DeletePartialMatch(gone)
	}
	for _, v := range q.gauges {
		v.DeletePartialMatch(gone)
	}
}
