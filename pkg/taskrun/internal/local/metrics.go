package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/telemetry"
)

// The results of ingest_task_process_total (contract §8).
const (
	ResultSucceeded = "succeeded"
	ResultRetry     = "retry"
	ResultDead      = "dead"
	ResultSkipped   = "skipped" // terminal, suspended, withdrawn or gone
	ResultNotDue    = "not_due"
	ResultBusy      = "busy"
)

// Metrics are the runner's figures.
type Metrics struct {
	Processed     *prometheus.CounterVec
	Seconds       *prometheus.HistogramVec
	Lateness      prometheus.Histogram
	Takeovers     prometheus.Counter
	Stage         *prometheus.HistogramVec
	DueWork       prometheus.Gauge
	OldestDue     prometheus.Gauge
	Lost          prometheus.Counter
	HandedBack    prometheus.Counter
	EnqueuedAgain prometheus.Counter
	SlotsLost     prometheus.Gauge
	FinishBatch   prometheus.Histogram
}

// NewMetrics registers the figures; a second runner on the same registry shares them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{}
	work := prometheus.ExponentialBuckets(0.001, 2.5, 16) // 1 ms … 15 min
	late := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m.Processed = counterVec(reg, "ingest_task_process_total", "Deliveries and attempts by how they ended.", "result")
	m.Seconds = histogramVec(reg, "ingest_task_process_seconds", "Time from claim to committed outcome, by result.", work, "result")
	m.Lateness = telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ingest_retry_lateness_seconds", Help: "Start of a retry after its nextRetryAt.", Buckets: late}))
	m.Takeovers = counter(reg, "ingest_takeover_total", "Tasks taken over after their lease had expired.")
	m.Stage = histogramVec(reg, "ingest_stage_seconds", "Time that attempts spent in a stage.", work, "stage")
	m.DueWork = gauge(reg, "ingest_due_work", "Tasks that could start now.")
	m.OldestDue = gauge(reg, "ingest_oldest_due_age_seconds", "Age of the oldest task that could start now.")
	m.Lost = counter(reg, "ingest_task_lost_total", "Outcomes dropped because the claim was no longer the row's.")
	m.HandedBack = counter(reg, "ingest_task_handed_back_total", "Tasks handed back at a stop or for a fault of the process, with no attempt counted.")
	m.EnqueuedAgain = counter(reg, "ingest_task_repromised_total", "Lost deliveries that were added again.")
	m.SlotsLost = gauge(reg, "ingest_slots_lost", "Slots written off because a run ignores that it was cancelled.")
	m.FinishBatch = telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ingest_finish_batch_tasks", Help: "Outcomes committed in one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 10)}))
	for _, r := range []string{ResultSucceeded, ResultRetry, ResultDead, ResultSkipped, ResultNotDue, ResultBusy} {
		m.Processed.WithLabelValues(r)
	}
	return m
}

// Count adds n to one result.
func (m *Metrics) Count(result string, n int) { m.Processed.WithLabelValues(result).Add(float64(n)) }

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
