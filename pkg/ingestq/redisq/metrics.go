package redisq

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	scrapeTimeout = time.Second // a scrape must not wait for a Redis that hangs
	scrapeCache   = time.Second // several scrapers cost one question
)

// Metrics are the counters of a process (contract §8); one set serves all its queues.
type Metrics struct {
	reclaim     *prometheus.CounterVec // result
	deadLetters prometheus.Counter
	dropped     prometheus.Counter
	healed      *prometheus.CounterVec // stream
	trimmed     *prometheus.CounterVec // stream
	zombies     *prometheus.CounterVec // stream
	failures    *prometheus.CounterVec // stream
}

// NewMetrics makes the counters and registers them; registered already, it returns those that count.
// A nil reg registers nothing.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	vec := func(name, help, label string) *prometheus.CounterVec {
		return telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	}
	counter := func(name, help string) prometheus.Counter {
		return telemetry.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
	}
	m := &Metrics{
		reclaim: vec("ingest_stream_reclaim_total",
			"Pending deliveries that were taken over, by result: claimed, gone (no such pending entry) or error.", "result"),
		deadLetters: telemetry.DeadLetters(reg),
		dropped: counter("ingest_stream_undecodable_dropped_total",
			"Undecodable deliveries that were acknowledged without a dead letter, because the dead letter stream is off."),
		healed: vec("ingest_stream_group_lost_total",
			"Times that the stream or its group was missing and was made again, by stream.", "stream"),
		trimmed: vec("ingest_stream_trimmed_total", "Entries removed because every group had finished them, by stream.", "stream"),
		zombies: vec("ingest_stream_zombies_removed_total", "Dead members removed from the group, by stream.", "stream"),
		failures: vec("ingest_stream_read_failures_total", "Reads that failed because Redis did not serve them, by stream.",
			"stream"),
	}
	for _, result := range []string{"claimed", "gone", "error"} {
		m.reclaim.WithLabelValues(result)
	}
	return m
}

// forStream shows the labels at zero from the start.
func (m *Metrics) forStream(stream string) {
	for _, vec := range []*prometheus.CounterVec{m.healed, m.trimmed, m.zombies, m.failures} {
		vec.WithLabelValues(stream)
	}
}

var (
	lengthDesc  = prometheus.NewDesc("ingest_stream_length", "Entries in the stream.", []string{"stream"}, nil)
	pendingDesc = prometheus.NewDesc("ingest_stream_pending",
		"Entries that the group was given and has not acknowledged.", []string{"stream", "group"}, nil)
)

// StreamStats are the counts of one stream for its group.
type StreamStats struct {
	Stream, Group string
	ingestq.Stats
}

// collector asks Redis when it is scraped.
type collector struct {
	streams *telemetry.Asked[[]StreamStats]
}

// NewCollector shows ingest_stream_length and ingest_stream_pending of all streams that ask returns; a process has one.
// While Redis does not answer there are no such series. now is the clock.
func NewCollector(ask func(ctx context.Context) ([]StreamStats, error), now func() time.Time) prometheus.Collector {
	return collector{&telemetry.Asked[[]StreamStats]{Ask: ask, Now: now, Wait: scrapeTimeout, Keep: scrapeCache}}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- lengthDesc
	out <- pendingDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	streams, err := c.streams.Get()
	if err != nil {
		return
	}
	for _, s := range streams {
		out <- prometheus.MustNewConstMetric(lengthDesc, prometheus.GaugeValue, float64(s.Length), s.Stream)
		out <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(s.Pending), s.Stream, s.Group)
	}
}
