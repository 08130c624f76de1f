// Package rehydrator is the body of the command: what is done with the copies of tasks in RabbitMQ (design D19).
//
// The row is the truth. A copy whose row has ended is acknowledged. Mode rehydrate gives QUEUED rows a delivery; with --restore it makes
// rows of copies that have none. Mode execute runs QUEUED tasks by the unchanged runner and its claims, and needs no Redis. Mode auto
// executes while the queue of deliveries is away, and rehydrates when it is back.
package rehydrator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/telemetry"
	"github.com/millweir/millweir/pkg/wiring/documents"
	_ "github.com/millweir/millweir/pkg/wiring/kafka" // one of the two carries deliveries
	wiring "github.com/millweir/millweir/pkg/wiring/mirror"
	"github.com/millweir/millweir/pkg/wiring/queue"
	_ "github.com/millweir/millweir/pkg/wiring/redis"
	"github.com/millweir/millweir/pkg/wiring/worker"
)

// The modes.
const (
	Rehydrate = "rehydrate"
	Execute   = "execute"
	Auto      = "auto"
)

// Wish is what the command line asks for.
type Wish struct {
	Mode                  string
	Once, DryRun, Restore bool

	room int // bytes of lost tasks' payloads that a round keeps; 0: mostHeld
}

// Help describes the flags.
const Help = `  --mode MODE        rehydrate: give QUEUED tasks a delivery; execute: run them, without Redis or Kafka;
                     auto: execute while that is away, rehydrate when it is back. Required
  --restore          with rehydrate: make rows again of tasks that the database has lost
  --once             with rehydrate: one round, then end (1: something could not be restored)
  --dry-run          with rehydrate: say what one round would do
`

// Flags adds the flags of the command.
func (w *Wish) Flags(flags *flag.FlagSet) {
	flags.StringVar(&w.Mode, "mode", "", "")
	flags.BoolVar(&w.Once, "once", false, "")
	flags.BoolVar(&w.DryRun, "dry-run", false, "")
	flags.BoolVar(&w.Restore, "restore", false, "")
}

// validate says which flags do not go together.
func (w *Wish) validate() error {
	switch {
	case w.Mode != Rehydrate && w.Mode != Execute && w.Mode != Auto:
		return process.BadSetting("--mode", "%q is not %s, %s or %s (see --help)", w.Mode, Rehydrate, Execute, Auto)
	case w.Mode != Rehydrate && (w.Once || w.DryRun || w.Restore):
		return process.BadSetting("--mode", "%s goes on until it is stopped: --once, --dry-run and --restore go with --mode %s", w.Mode, Rehydrate)
	}
	return nil
}

// Settings are those of a worker, and RabbitMQ's.
type Settings struct {
	Worker worker.Settings
	Rabbit wiring.Rabbit
}

// Validate joins the problems of all parts.
func (s *Settings) Validate() error { return errors.Join(s.Worker.Validate(), s.Rabbit.Validate()) }

const (
	lookEvery = 250 * time.Millisecond // of looks whether the queue of deliveries is there
	lookTime  = time.Second            // of one
	awayAfter = 2                      // looks in a row that fail, or succeed, before it counts as away, or back
	firstWait = time.Second            // after a round that failed
	mostWait  = 30 * time.Second
)

// Run does what is asked until ctx ends, or once.
func (w *Wish) Run(ctx context.Context, env *process.Env, s *Settings) error {
	if err := w.validate(); err != nil {
		return err
	}
	p, err := documents.Open(ctx, env, s.Worker.Shared)
	if err != nil {
		return err
	}
	defer p.Close()
	copies, err := mirror.New(s.Rabbit.Config(), mirror.Deps{DB: p.Store, Name: env.Name, Log: env.Log, Metrics: env.Metrics, Clock: time.Now})
	if err != nil {
		return err
	}
	if !p.Database.WaitForSchema(ctx) {
		return nil
	}
	r, err := newRounds(p, s, copies, *w)
	if err != nil {
		return err
	}
	if w.Once || w.DryRun {
		return w.once(ctx, env, r)
	}
	member, err := p.Transports[s.Worker.Shared.Queue.Kind].Member(queue.Membership{})
	if err != nil {
		return err
	}
	look := &look{ping: member.Ping, changed: make(chan struct{})}
	services := []process.Service{process.Named("queue watch", process.ServiceFunc(look.run))}
	if w.Mode != Execute {
		services = append(services, process.Named("rounds", process.ServiceFunc(func(ctx context.Context) error { return r.follow(ctx, look) })))
	}
	if w.Mode != Rehydrate {
		letters, _ := member.(ingestq.DeadLetterWriter) // nil where dead letters are events
		q := mirror.NewQueue(copies, func() bool { return w.Mode == Execute || look.away() }, letters)
		runner, err := worker.Over(p, &s.Worker, env.Name, q)
		if err != nil {
			return err
		}
		services = append(services, runner...)
	}
	return process.RunAll(ctx, services...)
}

// once makes one round and says what it did.
func (w *Wish) once(ctx context.Context, env *process.Env, r *rounds) error {
	did, err := r.round(ctx)
	if err != nil {
		return err
	}
	verb := "done"
	if w.DryRun {
		verb = "to do"
	}
	_, _ = fmt.Fprintf(env.Stdout, "%s: %d deliveries, %d rows restored, %d copies of ended tasks removed; of %d tasks; %d without a row, %d refused\n",
		verb, did.delivered, did.restored, did.ended, did.met, did.missing, len(did.refused))
	if len(did.refused) > 0 && !w.DryRun {
		return fmt.Errorf("%d tasks could not be restored; their copies stay. The first: %w", len(did.refused), did.refused[0])
	}
	return nil
}

// follow makes a round at the start and each time the queue of deliveries is back. One that fails is made again.
func (r *rounds) follow(ctx context.Context, look *look) error {
	wait := pause.Backoff{First: firstWait, Most: mostWait}
	for {
		back := look.returns()
		if look.away() { // deliveries cannot be added
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-back:
				continue
			}
		}
		did, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.p.Env.Log.Warn("rehydrator: a round failed", slog.String("error", telemetry.Redact(err.Error())))
			if !pause.For(ctx, wait.Next()) {
				return ctx.Err()
			}
			continue
		}
		wait.Reset()
		r.p.Env.Log.Info("rehydrator: round", slog.Int("met", did.met), slog.Int("delivered", did.delivered), slog.Int("restored", did.restored),
			slog.Int("ended", did.ended), slog.Int("missing", did.missing), slog.Int("refused", len(did.refused)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-back:
		}
	}
}

// newRounds makes what goes round the queue of copies.
func newRounds(p *documents.Parts, s *Settings, copies *mirror.Mirror, w Wish) (*rounds, error) {
	publisher, _, err := p.Transports[s.Worker.Shared.Queue.Kind].Publisher()
	if err != nil {
		return nil, err
	}
	shared := s.Worker.Shared
	shared.Tasks.MaxBacklog = 0 // what was accepted is not refused now
	app, err := p.Application(shared, ingest.Deps{Publisher: publisher, Policy: shared.Policy()}, 0)
	if err != nil {
		return nil, err
	}
	return &rounds{p: p, app: app, copies: copies, publisher: publisher, policy: shared.Policy(), wish: w}, nil
}
