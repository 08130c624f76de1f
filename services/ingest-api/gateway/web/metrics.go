package web

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the gateway's own series.
type Metrics struct {
	Requests *prometheus.HistogramVec
	Streams  prometheus.Gauge
	Uploads  *prometheus.CounterVec
	Bytes    prometheus.Counter
	Limited  prometheus.Counter
	Logins   prometheus.Counter
}

// The results of one uploaded file.
const (
	UploadAccepted  = "accepted"
	UploadDuplicate = "duplicate"
	UploadReplayed  = "replayed"
	UploadRefused   = "refused"
)

// NewMetrics makes the series and registers them; reg nil keeps them to themselves.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ingest_api_request_seconds",
			Help: "Time of HTTP requests by route template, method and class of status; event streams are counted by their clients instead.",
			// Reads answer in about a millisecond, a synchronous upload waits up to two minutes.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"route", "method", "status_class"}),
		Streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ingest_api_event_clients", Help: "Event streams that are open now.",
		}),
		Uploads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ingest_api_uploads_total", Help: "Files that were sent, by result: accepted, duplicate, replayed, refused.",
		}, []string{"result"}),
		Bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ingest_api_upload_bytes_total", Help: "Bytes of the files that were received whole.",
		}),
		Limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ingest_api_rate_limited_total", Help: "Files that the rate limit refused.",
		}),
		Logins: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ingest_api_failed_logins_total", Help: "Requests with a key or token that is not valid, those refused unseen among them.",
		}),
	}
	for _, result := range []string{UploadAccepted, UploadDuplicate, UploadReplayed, UploadRefused} {
		m.Uploads.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.Requests, m.Streams, m.Uploads, m.Bytes, m.Limited, m.Logins)
	}
	return m
}

// Observe counts one answered request; an unknown address has the route "none".
func (m *Metrics) Observe(route, method string, status int, took time.Duration, streaming bool) {
	if streaming {
		return
	}
	if route == "" {
		route = "none"
	}
	m.Requests.WithLabelValues(route, method, strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
}
