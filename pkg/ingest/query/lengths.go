package query

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// scrapeTime bounds what one scrape asks of each server.
const scrapeTime = 2 * time.Second

// lengths show how much waits, as /internal/tasks/stats says it, asked anew by each scrape. What a server does not say is absent.
type lengths struct {
	r                       *Reads
	queue, retry, suspended *prometheus.Desc
}

// Lengths shows queue_length, retry_length and suspended_length.
func (r *Reads) Lengths() prometheus.Collector {
	return &lengths{
		r:         r,
		queue:     prometheus.NewDesc("queue_length", "Deliveries in the queue.", nil, nil),
		retry:     prometheus.NewDesc("retry_length", "Tasks that wait for their next attempt.", nil, nil),
		suspended: prometheus.NewDesc("suspended_length", "Tasks that a person has to look at: suspended, or without a copy in RabbitMQ.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (l *lengths) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.queue
	ch <- l.retry
	ch <- l.suspended
}

// Collect implements prometheus.Collector.
func (l *lengths) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	if s, err := l.r.counts(ctx, taskstate.System()); err == nil {
		gauge(l.retry, s.RetryLength)
		gauge(l.suspended, s.SuspendedLength)
	}
	if l.r.queue == nil {
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	if n, err := l.r.queue.StreamLength(ctx); err == nil {
		gauge(l.queue, n)
	}
}

// counts are those of the rows.
func (r *Reads) counts(ctx context.Context, of taskstate.Scope) (ingest.Stats, error) {
	counts, err := r.store.Counts(ctx, of, "")
	if err != nil {
		return ingest.Stats{}, err
	}
	uncopied, err := sqldb.ReadRow(ctx, r.store, func(row sqldb.Scanner) (n int64, err error) { return n, row.Scan(&n) }, r.q.Get("UncopiedCount"))
	return ingest.Stats{
		Tasks: counts, RetryLength: counts[taskstate.StatusRetrying], SuspendedLength: counts[taskstate.StatusSuspended] + uncopied,
		Recent: map[taskstate.Status]int64{},
	}, err
}
