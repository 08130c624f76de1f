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
	produced, consumed, acked, retried, dead, events *prometheus.CounterVec
	handle, ackDelay                                 *prometheus.HistogramVec
	owned, uncovered, conflicts                      *prometheus.GaugeVec

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
		consumed: counter("consumed", "Messages read for a handler: success, or lost when their data was gone.", result...),
		acked:    counter("acked", "Entries acknowledged, by result: success, refused (another member has them) or failure.", result...),
		retried:  counter("retried", "Entries put off after a failure, by result.", result...),
		dead:     counter("dead", "Entries that became dead letters, by result.", result...),
		events: counter("events", "Everything else that happens: dropped, refused, lost, moved, quarantined, trimmed, zombie, healed, replied, …",
			labelTopic, labelGroup, "kind"),
		handle:    histogram("handle", "Time of handlers, by their outcome.", result...),
		ackDelay:  histogram("ack_delay", "Time from the first success of a batch to its acknowledgement.", member...),
		owned:     gauge("partitions_owned", "Partitions that a member owns now."),
		uncovered: gauge("partitions_uncovered", "Partitions that the caps of all members leave over, as a member saw it last."),
		conflicts: gauge("pin_conflicts", "Partitions that more than one live member has pinned, as a member saw it last."),
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
	switch e.Kind {
	case streammq.EventOwned:
		state(q.owned, e)
		return
	case streammq.EventUnowned:
		state(q.uncovered, e)
		return
	case streammq.EventPinConflict:
		state(q.conflicts, e)
		return
	case streammq.EventLeft:
		q.forget(e)
		return
	default:
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

// state notes what is so now.
func state(g *prometheus.GaugeVec, e streammq.Event) {
	g.WithLabelValues(e.Topic, e.Group, e.Member).Set(float64(e.Count))
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
	of := func(v *prometheus.CounterVec) prometheus.Counter {
		return v.WithLabelValues(k.topic, partition, k.group, k.member, k.result)
	}
	switch k.kind {
	case streammq.EventProduced:
		return &series{counter: q.produced.WithLabelValues(k.topic, partition, k.result)}
	case streammq.EventConsumed:
		return &series{counter: of(q.consumed)}
	case streammq.EventHandled:
		return &series{time: q.handle.WithLabelValues(k.topic, partition, k.group, k.member, k.result)}
	case streammq.EventAcked:
		return &series{
			counter: of(q.acked),
			time:    q.ackDelay.WithLabelValues(k.topic, partition, k.group, k.member),
		}
	case streammq.EventRetried:
		return &series{counter: of(q.retried)}
	case streammq.EventDead:
		return &series{counter: of(q.dead)}
	default:
		s := &series{event: q.events.WithLabelValues(k.topic, k.group, string(k.kind))}
		if v := q.counted(k); v != nil {
			s.counter = of(v)
		}
		return s
	}
}

// counted is where an event counts that did not succeed; nil: among the events only.
func (q *Metrics) counted(k seriesKey) *prometheus.CounterVec {
	if k.kind == streammq.EventLost {
		return q.consumed
	}
	return map[streammq.EventKind]*prometheus.CounterVec{
		streammq.EventAcked: q.acked, streammq.EventRetried: q.retried, streammq.EventDead: q.dead,
	}[k.of]
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
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{q.consumed, q.acked, q.retried, q.dead, q.handle, q.ackDelay, q.owned, q.uncovered, q.conflicts} {
		v.DeletePartialMatch(gone)
	}
}
