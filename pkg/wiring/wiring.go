// Package wiring is what every service starts from. The packages below it put one part each together out of its settings:
// database, queue, vector store, embedder, readers, and the application above them.
//
// A service links the parts that it imports: a dialect of SQL (sqldb/mysql), a transport (wiring/redis, wiring/kafka) and
// a reader of documents (extract/pdf) register themselves, as drivers of database/sql do.
package wiring

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/process"
)

// Base is a process's surroundings and what it has opened. Close closes that, the last first.
type Base struct {
	Env     *process.Env
	closers []func() error
}

// New makes the base of a process.
func New(env *process.Env) *Base { return &Base{Env: env} }

// Close closes what was opened; errors are logged, for nothing is left to do about them.
func (b *Base) Close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		if err := b.closers[i](); err != nil {
			b.Env.Log.Warn("wiring: close", slog.Any("error", err))
		}
	}
	b.closers = nil
}

// Later keeps a closer for Close.
func (b *Base) Later(f func() error) { b.closers = append(b.closers, f) }

// Watch shows a part's figures, once per process.
func (b *Base) Watch(c prometheus.Collector) {
	var twice prometheus.AlreadyRegisteredError
	if err := b.Env.Metrics.Register(c); err != nil && !errors.As(err, &twice) {
		b.Env.Log.Warn("wiring: figures of a part", slog.Any("error", err))
	}
}

// MS turns a setting in milliseconds into a duration.
func MS(n int) time.Duration { return time.Duration(n) * time.Millisecond }
