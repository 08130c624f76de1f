package gateway

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the gateway's own series.
type metrics struct {
	requests *prometheus.HistogramVec
	streams  prometheus.Gauge
	uploads  *prometheus.CounterVec
	bytes    prometheus.Counter
	limited  prometheus.Counter
	logins   prometheus.Counter
}

// The results of one uploaded file.
const (
	uploadAccepted  = "accepted"
	uploadDuplicate = "duplicate"
	uploadReplayed  = "replayed"
	uploadRefused   = "refused"
)

// newMetrics makes the series and registers them; reg nil keeps them to themselves.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ingest_api_request_seconds",
			Help: "Time of HTTP requests by route template, method and class of status; event streams are counted by their clients instead.",
			// Reads answer in about a millisecond, a synchronous upload waits up to two minutes.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"route", "method", "status_class"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ingest_api_event_clients", Help: "Event streams that are open now.",
		}),
		uploads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ingest_api_uploads_total", Help: "Files that were sent, by result: accepted, duplicate, replayed, refused.",
		}, []string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ingest_api_upload_bytes_total", Help: "Bytes of the files that were received whole.",
		}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ingest_api_rate_limited_total", Help: "Files that the rate limit refused.",
		}),
	}
	m.logins = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ingest_api_failed_logins_total", Help: "Requests with a key or token that is not valid, those refused unseen among them.",
	})
	for _, result := range []string{uploadAccepted, uploadDuplicate, uploadReplayed, uploadRefused} {
		m.uploads.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.streams, m.uploads, m.bytes, m.limited, m.logins)
	}
	return m
}

// observe counts one answered request; an unknown address has the route "none".
func (m *metrics) observe(route, method string, status int, took time.Duration, streaming bool) {
	if streaming {
		return
	}
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
}
