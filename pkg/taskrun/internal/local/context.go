package local

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

// TaskContext is ctx for the work on a task: without its end and span, with the ids of the task for log lines and calls.
func TaskContext(ctx context.Context, t *taskstate.Task) context.Context {
	ctx = telemetry.WithTask(trace.ContextWithSpanContext(context.WithoutCancel(ctx), trace.SpanContext{}), t.ID)
	return telemetry.WithTraceparent(telemetry.WithRequest(ctx, t.RequestID), t.TraceParent)
}

// Ctx is the context of the run: one per claim, since it is cancelled from outside its goroutine. What it is made of is made when
// somebody asks: a run that ends without a call that blocks needs none of it.
func (h *Claim) Ctx() context.Context { return (*runContext)(h) }

// Cancel ends the context of the run, with a cause; of two causes the first counts.
func (h *Claim) Cancel(cause error) {
	h.ctxMu.Lock()
	defer h.ctxMu.Unlock()
	if h.ended == nil {
		if h.ended = cause; cause == nil {
			h.ended = context.Canceled
		}
	}
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// Cause is why the context has ended; nil: it has not.
func (h *Claim) Cause() error {
	h.ctxMu.Lock()
	defer h.ctxMu.Unlock()
	return h.ended
}

// runContext is a Claim as the context of its run.
type runContext Claim

// real makes the context, once.
func (r *runContext) real() context.Context {
	r.ctxMu.Lock()
	defer r.ctxMu.Unlock()
	if r.made == nil {
		base := r.Attempt
		if base == nil {
			base = TaskContext(r.Base, &r.Task)
		}
		r.made, r.cancel = context.WithCancelCause(base)
		if r.ended != nil {
			r.cancel(r.ended)
		}
	}
	return r.made
}

// Deadline implements context.Context.
func (r *runContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (r *runContext) Done() <-chan struct{} { return r.real().Done() }

// Err implements context.Context.
func (r *runContext) Err() error {
	if (*Claim)(r).Cause() == nil {
		return nil
	}
	return context.Canceled
}

// Value implements context.Context; context.Cause and contexts below ask by it too.
func (r *runContext) Value(key any) any { return r.real().Value(key) }
