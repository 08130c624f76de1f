package mq

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/streammq"
)

// scrapeTimeout bounds one look at Redis; a scrape waits no longer.
const scrapeTimeout = 5 * time.Second

// Collector shows what topics hold, read once per scrape (contract §8). Members that left are not in what it reads.
type Collector struct {
	mq     *streammq.MQ
	topics []string
	log    *slog.Logger

	length, pending, inflight, lag, unowned, frontier *prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector shows the topics of those names, as far as they exist; with none, all topics of the registry.
func NewCollector(mq *streammq.MQ, log *slog.Logger, topics ...string) *Collector {
	desc := func(what, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("streammq_"+what, help, labels, nil)
	}
	return &Collector{
		mq: mq, topics: topics, log: log,
		length:   desc("length", "Entries in a partition's stream, finished ones too.", labelTopic, labelPartition),
		pending:  desc("pending", "Entries that a group was given and has not finished.", labelTopic, labelPartition, labelGroup),
		inflight: desc("inflight", "Of these, the ones in the hands of each live member.", labelTopic, labelPartition, labelGroup, labelConsumer),
		lag:      desc("lag", "Entries that a group was not given yet; up to 10,000 where the server cannot tell.", labelTopic, labelPartition, labelGroup),
		frontier: desc("frontier_age_seconds", "Age of the oldest entry that a group has not finished; 0: it has finished all.", labelTopic, labelPartition, labelGroup),
		unowned:  desc("partitions_unowned", "Partitions that have no owner.", labelTopic, labelGroup),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.length, c.pending, c.inflight, c.lag, c.unowned, c.frontier} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Where Redis does not answer, the figures are missing from the scrape.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // a scrape has no context
	defer cancel()
	known, err := c.mq.Topics(ctx)
	if err != nil {
		c.log.DebugContext(ctx, "telemetry: topics are not shown", slog.Any("error", err))
		return
	}
	for _, t := range known {
		if t.Partitions == 0 || t.Deleting || len(c.topics) > 0 && !slices.Contains(c.topics, t.Name) {
			continue
		}
		if err := c.topic(ctx, t, out); err != nil {
			c.log.DebugContext(ctx, "telemetry: a topic is not shown", slog.String("topic", t.Name), slog.Any("error", err))
		}
	}
}

// topic shows one topic.
func (c *Collector) topic(ctx context.Context, info streammq.TopicInfo, out chan<- prometheus.Metric) error {
	mq, err := c.mq.ForLayout(info.Layout)
	if err != nil {
		return err
	}
	topic := info.Name
	a := mq.Admin(topic)
	stats, err := a.Stats(ctx)
	if err != nil {
		return err
	}
	measure := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) { measure(d, float64(n), labels...) }
	for _, p := range stats.Each {
		gauge(c.length, p.Entries, topic, partitionLabel(p.Partition))
	}
	groups, err := a.Groups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		parts, err := a.GroupStats(ctx, g.Name)
		if err != nil {
			return err
		}
		unowned := int64(0)
		for _, p := range parts {
			gauge(c.pending, p.Pending, topic, partitionLabel(p.Partition), g.Name)
			gauge(c.lag, p.Lag, topic, partitionLabel(p.Partition), g.Name)
			measure(c.frontier, p.FrontierAge.Seconds(), topic, partitionLabel(p.Partition), g.Name)
			if p.Owner == "" {
				unowned++
			}
		}
		gauge(c.unowned, unowned, topic, g.Name)
		if err := c.hands(ctx, a, topic, g.Name, gauge); err != nil {
			return err
		}
	}
	return nil
}

// hands shows what live members have in hand, those of one stable name together.
func (c *Collector) hands(ctx context.Context, a *streammq.Admin, topic, group string, gauge func(*prometheus.Desc, int64, ...string)) error {
	consumers, err := a.InFlight(ctx, group)
	if err != nil {
		return err
	}
	type hand struct {
		partition int
		member    string
	}
	sums := map[hand]int64{}
	for _, one := range consumers {
		if one.Live {
			sums[hand{one.Partition, stableName(one.Consumer)}] += one.Pending
		}
	}
	for h, n := range sums {
		gauge(c.inflight, n, topic, partitionLabel(h.partition), group, h.member)
	}
	return nil
}

// startLength is what streammq adds to a member's name at each start: a hyphen and a UUID.
const startLength = 1 + 36

// stableName is a member's name without what its start added.
func stableName(consumer string) string {
	if at := len(consumer) - startLength; at > 0 && consumer[at] == '-' {
		return consumer[:at]
	}
	return consumer
}
