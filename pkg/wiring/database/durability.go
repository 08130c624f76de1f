package database

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/wiring"
)

const (
	// durabilityEvery is the pause between two looks: settings can be changed while a server runs.
	durabilityEvery = 15 * time.Second
	durabilityRetry = time.Second // while the database has not answered yet
	durabilityLimit = 5 * time.Second
)

// durability looks at what the servers keep of what they have answered, says it in one line at the start and whenever
// it changes, and shows it as a figure and in readiness. The store itself refuses connections to an unsafe database;
// this finds one that is changed while it runs.
type durability struct {
	task     func(ctx context.Context) (sqldb.Durability, error)
	stream   func(ctx context.Context) (string, error)
	allow    bool // ALLOW_UNSAFE_DURABILITY
	log      *slog.Logger
	degraded *prometheus.GaugeVec // of the durability of each store: 0 or 1

	mu         sync.Mutex
	last       sqldb.Durability // nil: the database has not answered yet
	lastStream string
	said       string
}

// WatchDurability starts the looks; closing the base ends them. keeps says what the queue keeps.
func (d *Database) WatchDurability(ctx context.Context, b *wiring.Base, allowUnsafe bool, keeps func(ctx context.Context) (string, error)) error {
	w := &durability{
		task: d.Store.Durability, allow: allowUnsafe, log: b.Env.Log, lastStream: string(sqldb.LevelUnknown),
		stream: keeps,
		degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "durability_degraded",
			Help: "1 while a store's settings keep less than every answered commit through a power failure, by store.",
		}, []string{"store"}),
	}
	if err := b.Env.Metrics.Register(w.degraded); err != nil {
		return err
	}
	b.Env.Ready.Register("durability", w.ready)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ctx)
	}()
	b.Later(func() error { cancel(); <-ended; return nil })
	return nil
}

// run looks until ctx ends.
func (d *durability) run(ctx context.Context) {
	for {
		wait := durabilityEvery
		if !d.look(ctx) {
			wait = durabilityRetry
		}
		if !pause.For(ctx, wait) {
			return
		}
	}
}

// look asks both servers once; known false: the database has never answered.
func (d *durability) look(ctx context.Context) (known bool) {
	ctx, cancel := context.WithTimeout(ctx, durabilityLimit)
	defer cancel()
	task, err := d.task(ctx)
	stream, streamErr := d.stream(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if streamErr == nil {
		d.lastStream = stream
	}
	if err != nil { // readiness says so under the database's own name
		return d.last != nil
	}
	d.last = task
	weak := 0.0
	if task.Level() != sqldb.LevelDisk {
		weak = 1
	}
	d.degraded.WithLabelValues("task").Set(weak)
	d.say(ctx)
	return true
}

// say writes the line if it is another than the last one; the caller holds mu.
func (d *durability) say(ctx context.Context) {
	level := d.last.Level()
	line := "durability: task=" + string(level) + ", stream=" + d.lastStream
	now := line + " " + d.last.String()
	if now == d.said {
		return
	}
	d.said = now
	attrs := []any{slog.String("settings", d.last.String())}
	for _, s := range d.last.Weak() {
		attrs = append(attrs, slog.Group(s.Name, slog.String("loses", s.Loses), slog.String("remedy", "set it to "+s.Want)))
	}
	at := slog.LevelInfo
	switch {
	case d.refused() != nil:
		at = slog.LevelError
		attrs = append(attrs, slog.Any("error", d.refused()))
	case level != sqldb.LevelDisk:
		at = slog.LevelWarn
	}
	d.log.Log(ctx, at, line, attrs...)
}

// ready is the readiness check: a database that would lose what it has answered by its own crash is not used.
func (d *durability) ready(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused()
}

// refused is nil unless the database keeps too little and nobody allowed that.
func (d *durability) refused() error {
	if d.last.Level() != sqldb.LevelNone || d.allow {
		return nil
	}
	return &sqldb.UnsafeError{Durability: d.last}
}
