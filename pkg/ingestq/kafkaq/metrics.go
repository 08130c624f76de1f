package kafkaq

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	scrapeTimeout = 2 * time.Second // a scrape must not wait for a broker that hangs
	scrapeCache   = time.Second     // several scrapers cost one question
)

// Metrics are the counters of a process; one set serves all its members.
type Metrics struct {
	deadLetters prometheus.Counter
	quarantined *prometheus.CounterVec
	failures    *prometheus.CounterVec
	joined      *prometheus.CounterVec
	resets      *prometheus.CounterVec
}

// NewMetrics makes the counters and registers them; registered already, it returns those that count.
// A nil reg registers nothing.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	vec := func(name, help string) *prometheus.CounterVec {
		return telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"topic"}))
	}
	return &Metrics{
		deadLetters: telemetry.DeadLetters(reg),
		quarantined: vec("ingest_kafka_quarantined_total", "Undecodable records that were written to the topic of dead letters, by topic."),
		failures:    vec("ingest_kafka_session_failures_total", "Times that the member could not stay in the group, by topic."),
		joined:      vec("ingest_kafka_sessions_total", "Times that the member began to take part in the group, by topic."),
		resets:      vec("ingest_kafka_offset_resets_total", "Committed offsets that lay outside the log and were set to one of its ends, by topic."),
	}
}

// forTopic shows the labels at zero from the start.
func (m *Metrics) forTopic(topic string) {
	for _, vec := range []*prometheus.CounterVec{m.quarantined, m.failures, m.joined, m.resets} {
		vec.WithLabelValues(topic)
	}
}

var (
	lagDesc = prometheus.NewDesc("ingest_kafka_lag", "Records that the group has not finished, by partition.",
		[]string{"topic", "group", "partition"}, nil)
	lengthDesc = prometheus.NewDesc("ingest_stream_length", "Entries in the stream.", []string{"stream"}, nil)
)

// collector asks the brokers when it is scraped.
type collector struct {
	cfg     Config
	borders *telemetry.Asked[[]border]
}

// Collector shows ingest_kafka_lag, and the topic's length as ingest_stream_length. While no broker answers there are none.
func (c *Client) Collector(now func() time.Time) prometheus.Collector {
	return collector{c.cfg, &telemetry.Asked[[]border]{Ask: c.lags, Now: now, Wait: scrapeTimeout, Keep: scrapeCache}}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- lagDesc
	out <- lengthDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	borders, err := c.borders.Get()
	if err != nil {
		return
	}
	length := int64(0)
	for _, b := range borders {
		length += b.Newest - b.Oldest
		out <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(b.lag()), c.cfg.Topic, c.cfg.Group, strconv.Itoa(int(b.Partition)))
	}
	out <- prometheus.MustNewConstMetric(lengthDesc, prometheus.GaugeValue, float64(length), c.cfg.Topic)
}
