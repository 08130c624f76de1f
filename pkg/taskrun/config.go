package taskrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/delivery"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	maxProcessChars = 24   // what ingest_worker takes, and some to spare
	maxConcurrency  = 4096 // far above what one process can use
	usualSlots      = 64   // without Concurrency
	mostSlots       = 1024 // in a backlog of short tasks, without Concurrency
	maxSweep        = 500  // what stores lock in one transaction
	maxRecovery     = 500 * time.Millisecond
	maxHeartbeat    = time.Second

	flushLimit = 10 * time.Second // what a stop gives to the last commits and acknowledgements
	stallAfter = 30 * time.Second // deliveries wait, slots are free, and nothing came for so long: not ready
)

// Config is what an operator sets for a runner.
type Config struct {
	Process     string // names this start of the process: unique, ASCII, no "/", at most 24 characters
	Concurrency int    // slots: tasks that run at once; 0: 64, and as many as 1,024 in a backlog of short tasks
	Policy      taskstate.Policy

	MainLoop bool          // take new deliveries (stream-worker: yes, reclaimer: no)
	Block    time.Duration // longest wait of one read; also what a stop waits for it

	Recovery         bool          // due retries, takeovers and all sweeps (INGEST_WORKER_RECOVERY)
	RecoveryInterval time.Duration // longest pause of the recovery loop; at most 500 ms
	SweepInterval    time.Duration // INGEST_SWEEP_INTERVAL_MS: lost deliveries, owed DLQ entries, the gauges of due work
	SweepBatch       int           // rows of one sweep
	Reconcile        Reconcile
	PinMax           time.Duration // INGEST_STREAM_PIN_MAX_MS
	TrimInterval     time.Duration

	HeartbeatEvery time.Duration // 0: min(lease/3, 1 s)
	FinishBatch    int           // most outcomes of one transaction
	StopGrace      time.Duration // how long running tasks may still end at a stop
	HandBack       time.Duration // what runs that a stop has cancelled get to come back in; 0: 5 s. The rest is left to its lease
	// StallLimit is how long a stage may go without a report; the entry of StageNone serves stages without their own.
	// No entry: no limit. (INGEST_STAGE_STALL_MS)
	StallLimit map[taskstate.Stage]time.Duration
}

// Reconcile says how entries that were read and never acknowledged are put in order (design D4).
type Reconcile = delivery.Reconcile

// NewDefaultConfig returns the contract's defaults for a worker; Process and Policy.DLQ are the caller's.
func NewDefaultConfig() Config {
	return Config{
		Policy: taskstate.Policy{
			BaseBackoff: time.Second, MaxBackoff: 10 * time.Minute,
			Lease: 30 * time.Second, MaxCrashes: 3, Slack: 2 * time.Second,
		},
		MainLoop: true, Block: 500 * time.Millisecond,
		Recovery: true, RecoveryInterval: maxRecovery, SweepInterval: 2 * time.Second, SweepBatch: 500,
		Reconcile: Reconcile{Enabled: true, Interval: 5 * time.Second, Idle: 10 * time.Minute, Batch: 20},
		PinMax:    15 * time.Minute, TrimInterval: 10 * time.Second,
		FinishBatch: 500, StopGrace: 10 * time.Second,
		StallLimit: map[taskstate.Stage]time.Duration{taskstate.StageNone: 5 * time.Minute},
	}
}

// Validate returns every problem of the configuration, joined.
func (c Config) Validate() error {
	errs := []error{c.Policy.Validate()}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(validProcess(c.Process), "process name %q: 1–%d ASCII characters without \"/\" or spaces", c.Process, maxProcessChars)
	check(c.Concurrency >= 0 && c.Concurrency <= maxConcurrency, "concurrency %d: 0–%d", c.Concurrency, maxConcurrency)
	check(c.MainLoop || c.Recovery, "neither new deliveries nor recovery: nothing to do")
	check(!c.MainLoop || c.Block > 0, "read block %s is not positive", c.Block)
	check(c.RecoveryInterval > 0 && c.RecoveryInterval <= maxRecovery, "recovery interval %s: above 0, at most %s", c.RecoveryInterval, maxRecovery)
	check(c.SweepInterval > 0, "sweep interval %s is not positive", c.SweepInterval)
	check(c.SweepBatch >= 1 && c.SweepBatch <= maxSweep, "sweep batch %d: 1–%d", c.SweepBatch, maxSweep)
	check(!c.Reconcile.Enabled || c.Reconcile.Interval > 0, "reclaim interval %s is not positive", c.Reconcile.Interval)
	check(!c.Reconcile.Enabled || c.Reconcile.Batch > 0, "reclaim batch %d is not positive", c.Reconcile.Batch)
	check(c.Reconcile.Idle >= 0, "reclaim idle %s is negative", c.Reconcile.Idle)
	check(c.PinMax > 0, "longest pin %s is not positive", c.PinMax)
	check(c.TrimInterval > 0, "trim interval %s is not positive", c.TrimInterval)
	check(c.HeartbeatEvery >= 0, "heartbeat interval %s is negative", c.HeartbeatEvery)
	check(c.FinishBatch >= 1 && c.FinishBatch <= maxSweep, "finish batch %d: 1–%d", c.FinishBatch, maxSweep)
	check(c.StopGrace >= 0, "stop grace %s is negative", c.StopGrace)
	check(c.HandBack >= 0, "time to hand back %s is negative", c.HandBack)
	for stage, limit := range c.StallLimit {
		check(limit > 0, "stall limit of stage %s: %s is not positive", stage, limit)
	}
	return errors.Join(errs...)
}

// validProcess reports whether a name can stand in front of a lease owner.
func validProcess(name string) bool {
	if name == "" || len(name) > maxProcessChars {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
}

// queue is what the work on the queue needs.
func (c Config) queue() delivery.Config {
	return delivery.Config{
		Policy: c.Policy, SweepBatch: c.SweepBatch, Reconcile: c.Reconcile, PinMax: c.PinMax, TrimInterval: c.TrimInterval,
	}
}

// slots are how many tasks run at once, and as many as they may become.
func (c Config) slots() (n, most int) {
	if c.Concurrency > 0 {
		return c.Concurrency, c.Concurrency
	}
	return usualSlots, mostSlots
}

// heartbeat is the interval of the heartbeat loop.
func (c Config) heartbeat() time.Duration {
	if c.HeartbeatEvery > 0 {
		return c.HeartbeatEvery
	}
	return min(c.Policy.Lease/3, maxHeartbeat)
}

// handBack is what cancelled runs get at a stop.
func (c Config) handBack() time.Duration {
	if c.HandBack > 0 {
		return c.HandBack
	}
	return local.HungAfter
}

// stallLimit is how long a stage may be silent; 0: for ever.
func (c Config) stallLimit(s taskstate.Stage) time.Duration {
	if limit, ok := c.StallLimit[s]; ok {
		return limit
	}
	return c.StallLimit[taskstate.StageNone]
}

// Deps are the parts that a runner works with.
type Deps struct {
	Store taskstate.Database
	Queue ingestq.Consumer // the runner calls its Run, and ends it last
	// Outbox is required where deliveries are events (Kafka). Elsewhere its unsent dead letters become owed entries of the
	// queue, as they should when no relay can send them (no Kafka is set); nil: they are left to a relay.
	Outbox Outbox
	// DeadLetters writes entries that rows owe where deliveries are events (Redis is set too); nil: they become events.
	DeadLetters ingestq.DeadLetterWriter
	Handlers    map[string]Handler // by Task.Type; a task of another type is SUSPENDED and says so
	Log         *slog.Logger
	Metrics     prometheus.Registerer // nil: figures are kept and not shown
	Tracer      trace.Tracer          // nil: no spans
	Now         func() time.Time      // nil: time.Now; measures durations within the process only
	// Fit returns why this process cannot run tasks: a folder that it does not see, no descriptors, no temporary space.
	// It is asked before the first read and after each fault (ErrProcess); nothing is taken before it returned nil. nil: always.
	Fit func(ctx context.Context) error
}

// validate reports a programmer's mistake.
func (d *Deps) validate() error {
	if d.Store == nil || d.Queue == nil || d.Log == nil {
		return errors.New("taskrun: Store, Queue and Log are required")
	}
	if _, pending := d.Queue.(ingestq.PendingQueue); !pending && d.Outbox == nil {
		return errors.New("taskrun: Outbox is required where deliveries are events")
	}
	if d.Tracer == nil {
		d.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return nil
}

// Outbox reads and moves the events of rows. *outbox.Reader implements it.
type Outbox = delivery.Outbox

// Publish adds one delivery per task: the fast path after a commit.
// An error loses nothing: the sweep for lost deliveries adds what was not added (design D5).
func Publish(ctx context.Context, p ingestq.Publisher, tasks []taskstate.Task) error {
	return delivery.Publish(ctx, p, tasks)
}
