package mirror

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/telemetry"
)

// metrics are the mirror's figures (contract §8).
type metrics struct {
	published *prometheus.CounterVec
	confirms  prometheus.Histogram
	gauges    *gauges
}

// newMetrics registers the figures.
func newMetrics(reg prometheus.Registerer, now func() time.Time) *metrics {
	m := &metrics{gauges: newGauges(now)}
	m.published = telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rabbit_publish_total",
		Help: "Copies sent to RabbitMQ, new and rotated, by result; timeout counts rabbit.publisher_timeout, failed rabbit.enqueue_failed (each attempt to connect that failed too).",
	}, []string{"result"}))
	m.confirms = telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "rabbit_publish_confirm_seconds", Help: "Time from the first message of a batch to a message's confirm.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}))
	for _, r := range []result{confirmed, returned, refused, timedOut, failed} {
		m.published.WithLabelValues(string(r))
	}
	if reg != nil {
		telemetry.Register[prometheus.Collector](reg, m.gauges)
	}
	return m
}

// count counts what became of messages.
func (m *metrics) count(all []sent) {
	for _, s := range all {
		m.published.WithLabelValues(string(s.result)).Inc()
		if s.result == confirmed {
			m.confirms.Observe(s.took.Seconds())
		}
	}
}

// figures are what a mirror that acts knows once its first round is over.
type figures struct {
	copies, missing, unknown int
	covered                  time.Time // what was accepted before is copied, or has ended; zero: not known yet
}

// gauges show the figures while they are known: absent, never 0, where no mirror acts.
type gauges struct {
	now                           func() time.Time
	copies, missing, unknown, lag *prometheus.Desc
	audit                         *prometheus.Desc

	mu       sync.Mutex
	shown    *figures
	appended time.Time // what was written before is in the audit stream; zero: not known, or there is none
}

func newGauges(now func() time.Time) *gauges {
	return &gauges{
		now:     now,
		copies:  prometheus.NewDesc("mirror_copies", "Tasks with a copy in RabbitMQ that this mirror knows.", nil, nil),
		missing: prometheus.NewDesc("mirror_missing", "Unfinished tasks without a confirmed copy, as far as the mirror has looked.", nil, nil),
		unknown: prometheus.NewDesc("mirror_unknown_copies", "Copies of the last round that no row belongs to. They are never thrown away.", nil, nil),
		lag:     prometheus.NewDesc("mirror_lag_seconds", "What was accepted longer ago and has not ended has a confirmed copy.", nil, nil),
		audit:   prometheus.NewDesc("mirror_audit_lag_seconds", "Changes of tasks that were written longer ago are in the audit stream.", nil, nil),
	}
}

// show sets the figures; nil: they are not known.
func (g *gauges) show(f *figures) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shown = f
}

// audited says what is in the audit stream; the zero time: not known.
func (g *gauges) audited(before time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.appended = before
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.copies, g.missing, g.unknown, g.lag, g.audit} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	f, appended := g.shown, g.appended
	g.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	if !appended.IsZero() {
		gauge(g.audit, max(0, g.now().Sub(appended).Seconds()))
	}
	if f == nil {
		return
	}
	gauge(g.copies, float64(f.copies))
	gauge(g.missing, float64(f.missing))
	gauge(g.unknown, float64(f.unknown))
	if !f.covered.IsZero() {
		gauge(g.lag, max(0, g.now().Sub(f.covered).Seconds()))
	}
}
