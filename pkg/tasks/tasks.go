// Package tasks is the door for every type of task: it submits, operates and explains them. What a type adds, such as the
// document that a task is about, its Type writes into the same transactions.
//
// A task runs in package taskrun, by its type's Handler; what becomes of it is decided in package taskstate.
package tasks

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed sql/*.sql
var statements embed.FS

// Errors of a submission, besides taskstate.ErrUnavailable and taskstate.ErrOutcomeUnknown.
var (
	ErrKeyReused   = errors.New("idempotency key was used for other content") // 422
	ErrBacklogFull = errors.New("the backlog is full")                        // 503 with Retry-After
	ErrUnknownType = errors.New("unknown type of task")
)

// Type is what the door knows of a sort of task; every taskrun.Handler is one. All methods are safe for concurrent use.
type Type interface {
	// Describe says what people are told about tasks of this type; always the same.
	Describe() taskrun.Description
	// OnTransition writes what belongs to changes of status in their transaction. changed are all of this type; payloads has, by task
	// id, what JudgeReplays returned.
	OnTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, payloads map[string]any) error
}

// Replayer is a Type whose tasks need more than their row to run again.
type Replayer interface {
	Type
	// JudgeReplays is asked about DEAD and CANCELLED tasks that are to be QUEUED again, whose rows are locked: why not, by
	// task id, and for the others what OnTransition needs to know.
	JudgeReplays(ctx context.Context, tx taskstate.Tx, tasks []taskstate.Task) (refused map[string]error, payloads map[string]any, err error)
}

// Caller is who asks: a scope and what the audit and the traces show.
type Caller struct {
	Scope       taskstate.Scope
	RequestID   string
	TraceParent string
	Channel     string // http, cli

	// Guard judges the locked row before a change of it (If-Match): what clients see of it, such as a taskstate.Task.
	// Its error refuses the change. nil: no condition.
	Guard func(current any) error
	// Note is written in the transaction of a change, before its commit (the audit log): no change without it. nil: nothing.
	Note taskstate.TxFunc
}

// Allows asks the caller's condition about the locked row.
func (c Caller) Allows(current any) error {
	if c.Guard == nil {
		return nil
	}
	return c.Guard(current)
}

// WriteNote writes what the caller wants beside the change.
func (c Caller) WriteNote(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
	if c.Note == nil {
		return nil
	}
	return c.Note(ctx, tx, m)
}

// Config is what an operator sets.
type Config struct {
	MaxAttempts    int           // INGEST_REDIS_MAX_ATTEMPTS: of tasks made from now on
	MaxBacklog     int           // INGEST_MAX_BACKLOG: tasks waiting to run; 0: no limit
	PublishTimeout time.Duration // of the fast path after a commit
}

// Validate returns every problem, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxAttempts > 0, "INGEST_REDIS_MAX_ATTEMPTS %d is not positive", c.MaxAttempts)
	check(c.MaxBacklog >= 0, "INGEST_MAX_BACKLOG %d is negative", c.MaxBacklog)
	check(c.PublishTimeout > 0, "publish timeout %s is not positive", c.PublishTimeout)
	return errors.Join(errs...)
}

// Deps are the parts that a Service stands on. Store, Types and Log are always needed.
type Deps struct {
	Store     taskstate.Database
	Publisher ingestq.Publisher // nil: deliveries are left to the sweep for lost ones
	Types     map[string]Type   // by Task.Type
	Events    Events            // nil: deliveries are not events
	Log       *slog.Logger
	Clock     func() time.Time    // nil: time.Now; for what the database's clock does not judge
	Redact    func(string) string // takes secrets out of error texts; nil: as they are
	Changed   func(ids ...string) // told the ids of tasks that this process changed; nil: nobody waits
}

// Service is the door. All methods are safe for concurrent use.
type Service struct {
	*Explainer
	d       Deps
	cfg     Config
	q       sqldb.Queries
	backlog backlog
	quiet   quietQueue // the queue, when it does not answer in time
	submits *batcher.Batcher[*submission]
}

// New checks deps and cfg and loads the statements of the store's dialect.
func New(d Deps, cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.Store == nil || d.Log == nil {
		return nil, errors.New("tasks: store and log are needed")
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Redact == nil {
		d.Redact = func(s string) string { return s }
	}
	if d.Changed == nil {
		d.Changed = func(...string) {}
	}
	q := sqldb.MustLoad(statements, "sql", d.Store.Dialect())
	about := make(map[string]taskrun.Description, len(d.Types))
	for name, t := range d.Types {
		about[name] = t.Describe()
	}
	s := &Service{
		d: d, cfg: cfg, q: q, Explainer: NewExplainer(d.Store, d.Events, d.Publisher, about), quiet: quietQueue{late: make(chan []taskstate.Task, 1)},
	}
	s.submits = batcher.New(batcher.Config{
		Workers: submitWorkers, MinConcurrent: submitEnough, Most: submitMost, MaxWait: submitPatience, Split: Splits,
	}, s.submitBatch)
	return s, nil
}
