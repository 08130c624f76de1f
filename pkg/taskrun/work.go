package taskrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/delivery"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The codes of failures that the runner itself finds; UPPER_SNAKE.
const (
	CodeStalled     = "STALLED"
	CodeInternal    = "INTERNAL"
	CodeUnknownType = "UNKNOWN_TYPE"
)

// labelWorker marks a worker's goroutine in profiles, and those that its runs start, so that the stack of a hung run can be found:
// log lines about a silent run name its worker.
const labelWorker = "task_worker"

// workers numbers the workers of all runners: a profile is of the whole program.
var workers atomic.Int64

// outcomeSort tells how a run ended.
type outcomeSort int

const (
	outcomeSuccess outcomeSort = iota
	outcomeFailure
	outcomeHandBack
)

// outcome is a run's end on its way into the table.
type outcome struct {
	h       *local.Claim
	sort    outcomeSort
	result  Result
	failure taskstate.Failure
	message string
}

// panicError is a recovered panic; the stack goes to the log only.
type panicError struct {
	value any
	stack []byte
}

// Error says what was thrown, without the stack.
func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// errUnexpected names an answer that does not go with the question.
func errUnexpected(o taskstate.Outcome) error {
	return fmt.Errorf("unexpected answer %q", o.Answer)
}

// worker is a goroutine that does one claim after the other: its stack has grown already. There are as many as claims have run at
// once; they wait for more until nobody takes outcomes any more.
func (r *Runner) worker(h *local.Claim) {
	name := strconv.FormatInt(workers.Add(1), 10)
	labelled := pprof.WithLabels(context.Background(), pprof.Labels(labelWorker, name))
	for {
		pprof.SetGoroutineLabels(labelled) // a run may have set others
		h.RunBy(name)
		r.work(h)
		select {
		case h = <-r.jobs:
		case <-r.ended:
			return
		}
	}
}

// work is the life of a claim: run, judge, hand the outcome over, free the slot.
func (r *Runner) work(h *local.Claim) {
	defer h.Cancel(nil)
	res := r.runPatiently(h.Ctx(), h)
	now := r.deps.Now()
	stage, took, hung := h.Finish(now)
	r.stageTook(stage, took)
	delivery.FailSpan(h.Span, res.Err)
	if o, ok := r.validate(h, res); ok {
		r.handOver(o)
	} else {
		r.m.Lost.Inc() // its entry may be the new holder's by now: leave it
		r.transport.Release(h.Delivery)
		r.claims.Drop(h)
	}
	if hung {
		r.slots.Restore()
		r.m.SlotsLost.Dec()
		return
	}
	r.slots.Ended(h.Recovery, now.Sub(h.Began))
}

// handOver gives an outcome to the finisher; it waits when too many are waiting. After a stop nobody takes it: its lease ends it.
func (r *Runner) handOver(o outcome) {
	o.h.Finishing(r.deps.Tracer)
	crash.Point("worker.before_finish")
	select {
	case r.outcomes <- o:
		if r.batchWaits() {
			select {
			case r.relief <- struct{}{}:
			default: // it knows
			}
		}
	case <-r.ended:
		r.claims.Drop(o.h)
	}
}

// runPatiently runs the kind again, under the same claim, while what stops it is the database's absence:
// an outage costs no attempt, as it costs no crash. Heartbeats go on and revive the lease; what a run has written
// is the next run's to find, as after a takeover.
func (r *Runner) runPatiently(ctx context.Context, h *local.Claim) Result {
	wait := local.Backoff()
	for {
		res := r.runHandler(ctx, h)
		if !errors.Is(res.Err, taskstate.ErrUnavailable) && !errors.Is(res.Err, taskstate.ErrOutcomeUnknown) {
			return res
		}
		r.health.Warn(ctx, "runner: the database is away; the run begins anew", res.Err)
		h.Waits(r.deps.Now())
		if !pause.For(ctx, wait.Next()) {
			return res
		}
	}
}

// runHandler calls the kind and recovers its panic.
func (r *Runner) runHandler(ctx context.Context, h *local.Claim) (res Result) {
	k := r.handler(h.Task.Type)
	if k == nil {
		return Result{}
	}
	defer func() {
		if p := recover(); p != nil {
			res = Result{Err: &panicError{value: p, stack: debug.Stack()}}
		}
	}()
	return k.Handle(ctx, Job{Task: h.Task, Token: h.Token, Alone: h.Alone, Report: func(p taskstate.Progress) {
		r.stageTook(h.Report(p, r.deps.Now()))
	}})
}

// stageTook measures a stage that ended; before the first report there is none.
func (r *Runner) stageTook(stage taskstate.Stage, took time.Duration) {
	if stage != "" && stage != taskstate.StageNone {
		r.m.Stage.WithLabelValues(string(stage)).Observe(took.Seconds())
	}
}

// validate makes an outcome of a result; ok is false when the claim is known to be lost.
func (r *Runner) validate(h *local.Claim, res Result) (o outcome, ok bool) {
	o = outcome{h: h, result: res}
	cause := h.Cause()
	switch {
	case h.IsLost():
		return o, false
	case r.handler(h.Task.Type) == nil:
		o.sort, o.failure = outcomeFailure, taskstate.Failure{
			Code: CodeUnknownType, Suspend: true, Cause: fmt.Sprintf("nobody here does tasks of type %q", h.Task.Type),
			Message: "No worker that runs now does this type of task.",
		}
	case res.Err == nil:
		o.sort, o.message = outcomeSuccess, res.Message
	case errors.Is(cause, local.ErrStopping):
		o.sort, o.message = outcomeHandBack, "its process stops"
	case errors.Is(res.Err, ErrProcess):
		o.sort, o.message = outcomeHandBack, "a fault of its process: "+r.classify(h, res.Err).Cause
		r.unfit(h.Ctx(), res.Err)
	case errors.Is(res.Err, ErrElsewhere):
		o.sort, o.message = outcomeHandBack, r.classify(h, res.Err).Cause
	case errors.Is(cause, local.ErrStalled):
		o.sort, o.failure = outcomeFailure, r.stallFailure(h)
	default:
		crash.Point("worker.in_fail")
		o.sort, o.failure = outcomeFailure, r.classify(h, res.Err)
	}
	return o, true
}

// stallFailure is the failure of a silent stage.
func (r *Runner) stallFailure(h *local.Claim) taskstate.Failure {
	stage := h.At().Stage
	return taskstate.Failure{
		Code: CodeStalled, Stalled: true,
		Cause:   fmt.Sprintf("stage %s: no progress for %s", stage, r.cfg.stallLimit(stage)),
		Message: "The work made no progress for too long.",
	}
}

// classify asks the kind about an error; what the kind does not name stays an internal error.
func (r *Runner) classify(h *local.Claim, err error) (f taskstate.Failure) {
	if thrown, ok := errors.AsType[*panicError](err); ok {
		r.deps.Log.ErrorContext(h.Ctx(), "runner: task panicked", "task_id", h.Task.ID, "error", err, "stack", string(thrown.stack))
		return internalFailure(err)
	}
	if guard(func() error { f = r.handler(h.Task.Type).Classify(err); return nil }) != nil {
		return internalFailure(err)
	}
	if f.Cause == "" {
		f.Cause = err.Error()
	}
	if f.Code == "" {
		f.Code = CodeInternal
	}
	return f
}

// internalFailure is a failure whose cause only its text tells.
func internalFailure(err error) taskstate.Failure {
	return taskstate.Failure{
		Code: CodeInternal, Cause: err.Error(),
		Message: "The work failed for an internal reason.",
	}
}

// hungStack is the stack of a worker's goroutine, for the log.
func hungStack(worker string) string {
	var buf bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&buf, 1); err != nil {
		return err.Error()
	}
	mark := []byte(`"` + labelWorker + `":"` + worker + `"`)
	for block := range bytes.SplitSeq(buf.Bytes(), []byte("\n\n")) {
		if bytes.Contains(block, mark) {
			return string(block)
		}
	}
	return "not found"
}

// writtenOff logs a run that ignores its end.
func (r *Runner) writtenOff(h *local.Claim) {
	r.deps.Log.LogAttrs(h.Ctx(), slog.LevelError, "runner: a cancelled run does not return; its slot is written off",
		slog.String("task_id", h.Task.ID), slog.String("stage", string(h.At().Stage)), slog.String("worker", h.Worker()), slog.String("stack", hungStack(h.Worker())))
}
