package taskrun

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/telemetry"
)

// The results of ingest_task_process_total (contract §8).
const (
	resultSucceeded = "succeeded"
	resultRetry     = "retry"
	resultDead      = "dead"
	resultSkipped   = "skipped" // terminal, suspended, withdrawn or gone
	resultNotDue    = "not_due"
	resultBusy      = "busy"
)

// metrics are the runner's figures.
type metrics struct {
	processed     *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	lateness      prometheus.Histogram
	takeovers     prometheus.Counter
	stage         *prometheus.HistogramVec
	dueWork       prometheus.Gauge
	oldestDue     prometheus.Gauge
	lost          prometheus.Counter
	handedBack    prometheus.Counter
	enqueuedAgain prometheus.Counter
	slotsLost     prometheus.Gauge
	finishBatch   prometheus.Histogram
}

// newMetrics registers the figures; a second runner on the same registry shares them.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{}
	work := prometheus.ExponentialBuckets(0.001, 2.5, 16) // 1 ms … 15 min
	late := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m.processed = counterVec(reg, "ingest_task_process_total", "Deliveries and attempts by how they ended.", "result")
	m.seconds = histogramVec(reg, "ingest_task_process_seconds", "Time from claim to committed outcome, by result.", work, "result")
	m.lateness = telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ingest_retry_lateness_seconds", Help: "Start of a retry after its nextRetryAt.", Buckets: late}))
	m.takeovers = counter(reg, "ingest_takeover_total", "Tasks taken over after their lease had expired.")
	m.stage = histogramVec(reg, "ingest_stage_seconds", "Time that attempts spent in a stage.", work, "stage")
	m.dueWork = gauge(reg, "ingest_due_work", "Tasks that could start now.")
	m.oldestDue = gauge(reg, "ingest_oldest_due_age_seconds", "Age of the oldest task that could start now.")
	m.lost = counter(reg, "ingest_task_lost_total", "Outcomes dropped because the claim was no longer the row's.")
	m.handedBack = counter(reg, "ingest_task_handed_back_total", "Tasks handed back at a stop or for a fault of the process, with no attempt counted.")
	m.enqueuedAgain = counter(reg, "ingest_task_repromised_total", "Lost deliveries that were added again.")
	m.slotsLost = gauge(reg, "ingest_slots_lost", "Slots written off because a run ignores that it was cancelled.")
	m.finishBatch = telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ingest_finish_batch_tasks", Help: "Outcomes committed in one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 10)}))
	for _, r := range []string{resultSucceeded, resultRetry, resultDead, resultSkipped, resultNotDue, resultBusy} {
		m.processed.WithLabelValues(r)
	}
	return m
}

// count adds n to one result.
func (m *metrics) count(result string, n int) { m.processed.WithLabelValues(result).Add(float64(n)) }

func counter(reg prometheus.Registerer, name, help string) prometheus.Counter {
	return telemetry.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func gauge(reg prometheus.Registerer, name, help string) prometheus.Gauge {
	return telemetry.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func counterVec(reg prometheus.Registerer, name, help, label string) *prometheus.CounterVec {
	return telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
}

func histogramVec(reg prometheus.Registerer, name, help string, buckets []float64, label string) *prometheus.HistogramVec {
	return telemetry.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label}))
}
