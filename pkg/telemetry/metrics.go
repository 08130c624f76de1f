package telemetry

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with the runtime's and the process's figures and millweir_build_info.
func NewRegistry(service, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "millweir_build_info",
		Help:        "Always 1; the labels say which build of which service runs.",
		ConstLabels: prometheus.Labels{"service": service, "version": version, "go_version": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}

// DeadLetters is ingest_task_dlq_total, one counter of a process whichever way its dead letters go.
func DeadLetters(reg prometheus.Registerer) prometheus.Counter {
	return Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ingest_task_dlq_total", Help: "Dead letters written to the dead letter stream or topic.",
	}))
}

// Asked keeps the answer to a question that is asked when somebody scrapes: several scrapers cost one question.
type Asked[T any] struct {
	Ask  func(ctx context.Context) (T, error)
	Now  func() time.Time
	Wait time.Duration // what a question may take: a scrape must not wait for a server that hangs
	Keep time.Duration // how old an answer may be

	mu  sync.Mutex
	at  time.Time // of the last question; zero: none
	got T
	err error
}

// Get returns the last answer, or asks.
func (a *Asked[T]) Get() (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if age := a.Now().Sub(a.at); !a.at.IsZero() && age >= 0 && age < a.Keep {
		return a.got, a.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.Wait) // a scrape has no context
	defer cancel()
	a.got, a.err = a.Ask(ctx)
	a.at = a.Now()
	return a.got, a.err
}

// Register registers c, or returns the collector of the same description that reg has already. A nil reg registers nothing.
// It panics on two definitions of one name: a programmer's mistake.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if known, ok := there.ExistingCollector.(C); ok {
			return known
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}
