package taskrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The codes of failures that the runner itself finds; UPPER_SNAKE.
const (
	CodeStalled  = "STALLED"
	CodeInternal = "INTERNAL"
)

// labelTask marks a task's goroutine in profiles, so that a hung one's stack can be found.
const labelTask = "task_id"

// outcomeSort tells how a run ended.
type outcomeSort int

const (
	outcomeSuccess outcomeSort = iota
	outcomeFailure
	outcomeHandBack
	outcomeSuspend // nobody knows its type
)

// outcome is a run's end on its way into the table.
type outcome struct {
	h       *claim
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

// work is a task's goroutine: run, judge, hand the outcome over, free the slot.
func (r *Runner) work(h *claim) {
	defer r.runs.Done()
	defer h.cancel(nil)
	ctx := h.ctx
	var res Result
	pprof.Do(ctx, pprof.Labels(labelTask, h.task.ID), func(ctx context.Context) { res = r.runPatiently(ctx, h) })

	stage, took, hung := h.finish(r.deps.Now())
	r.stageTook(stage, took)
	failSpan(h.span, res.Err)
	if o, ok := r.validate(h, res); ok {
		r.handOver(o)
	} else {
		r.m.lost.Inc() // its delivery may be the new holder's by now: leave it
		r.holds.drop(h)
	}
	if hung {
		r.slots.restore()
		r.m.slotsLost.Dec()
		return
	}
	r.slots.give(h.recovery, 1)
}

// handOver gives an outcome to the finisher; it waits when too many are waiting. After a stop nobody takes it: its lease ends it.
func (r *Runner) handOver(o outcome) {
	o.h.finishing(r.deps.Tracer)
	crash.Point("worker.before_finish")
	select {
	case r.outcomes <- o:
	case <-r.ended:
		r.holds.drop(o.h)
	}
}

// runPatiently runs the kind again, under the same claim, while what stops it is the database's absence:
// an outage costs no attempt, as it costs no crash. Heartbeats go on and revive the lease; what a run has written
// is the next run's to find, as after a takeover.
func (r *Runner) runPatiently(ctx context.Context, h *claim) Result {
	var wait backoff
	for {
		res := r.runHandler(ctx, h)
		if !errors.Is(res.Err, taskstate.ErrUnavailable) && !errors.Is(res.Err, taskstate.ErrOutcomeUnknown) {
			return res
		}
		r.health.warn(ctx, "runner: the database is away; the run begins anew", res.Err)
		h.waits(r.deps.Now())
		if !pause(ctx, wait.after()) {
			return res
		}
	}
}

// runHandler calls the kind and recovers its panic.
func (r *Runner) runHandler(ctx context.Context, h *claim) (res Result) {
	if h.kind == nil {
		return Result{}
	}
	defer func() {
		if p := recover(); p != nil {
			res = Result{Err: &panicError{value: p, stack: debug.Stack()}}
		}
	}()
	return h.kind.Run(ctx, Job{Task: h.task, Token: h.token, Alone: h.alone, Report: func(p taskstate.Progress) {
		r.stageTook(h.report(p, r.deps.Now()))
	}})
}

// stageTook measures a stage that ended; before the first report there is none.
func (r *Runner) stageTook(stage taskstate.Stage, took time.Duration) {
	if stage != "" && stage != taskstate.StageNone {
		r.m.stage.WithLabelValues(string(stage)).Observe(took.Seconds())
	}
}

// validate makes an outcome of a result; ok is false when the claim is known to be lost.
func (r *Runner) validate(h *claim, res Result) (o outcome, ok bool) {
	o = outcome{h: h, result: res}
	cause := context.Cause(h.ctx)
	switch {
	case h.isLost():
		return o, false
	case h.kind == nil:
		o.sort = outcomeSuspend
		o.message = fmt.Sprintf("nobody here does tasks of type %q", h.task.Type)
	case res.Err == nil:
		o.sort, o.message = outcomeSuccess, res.Message
	case errors.Is(cause, ErrStopping):
		o.sort, o.message = outcomeHandBack, "its process stops"
	case errors.Is(res.Err, ErrProcess):
		o.sort, o.message = outcomeHandBack, "a fault of its process: "+r.classify(h, res.Err).Cause
		r.unfit(h.ctx, res.Err)
	case errors.Is(cause, ErrStalled):
		o.sort, o.failure = outcomeFailure, r.stallFailure(h)
	default:
		crash.Point("worker.in_fail")
		o.sort, o.failure = outcomeFailure, r.classify(h, res.Err)
	}
	return o, true
}

// stallFailure is the failure of a silent stage.
func (r *Runner) stallFailure(h *claim) taskstate.Failure {
	stage := h.stage()
	return taskstate.Failure{
		Code: CodeStalled, Stalled: true,
		Cause:   fmt.Sprintf("stage %s: no progress for %s", stage, r.cfg.stallLimit(stage)),
		Message: "The work made no progress for too long; it is tried again.",
	}
}

// classify asks the kind about an error; what the kind does not name stays an internal error.
func (r *Runner) classify(h *claim, err error) (f taskstate.Failure) {
	var thrown *panicError
	if errors.As(err, &thrown) {
		r.deps.Log.ErrorContext(h.ctx, "runner: task panicked", "task_id", h.task.ID, "error", err, "stack", string(thrown.stack))
		return internalFailure(err)
	}
	if guard(func() error { f = h.kind.Classify(err); return nil }) != nil {
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
		Message: "The work failed for an internal reason; it is tried again.",
	}
}

// hungStack is the stack of a task's goroutine, for the log.
func hungStack(taskID string) string {
	var buf bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&buf, 1); err != nil {
		return err.Error()
	}
	mark := []byte(`"` + labelTask + `":"` + taskID + `"`)
	for block := range bytes.SplitSeq(buf.Bytes(), []byte("\n\n")) {
		if bytes.Contains(block, mark) {
			return string(block)
		}
	}
	return "not found"
}

// writtenOff logs a run that ignores its end.
func (r *Runner) writtenOff(h *claim) {
	r.deps.Log.LogAttrs(h.ctx, slog.LevelError, "runner: a cancelled run does not return; its slot is written off",
		slog.String("task_id", h.task.ID), slog.String("stage", string(h.stage())), slog.String("stack", hungStack(h.task.ID)))
}
