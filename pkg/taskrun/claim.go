package taskrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/delivery"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

const maxExclude = 300 // ids that a sweep is told to leave out

// claimTx is one claiming transaction; its hooks may run again when the transaction is retried.
// After a COMMIT whose outcome is unknown the same claimTx is tried again: it knows its own claims by its owner text,
// so that a task is never busy to itself (design D2).
type claimTx struct {
	r          *Runner
	req        taskstate.ClaimRequest
	deliveries map[string]string // by task; nil: recovery
	reserving  bool              // this transaction may make the process's one reservation
	reserved   string            // the task that it was given to
	m          taskstate.DBClock
	attempts   map[string]context.Context // with the spans of the claims, by task: the same ones when the transaction runs again
	types      map[string]string          // task type by id, of the last call of decide
	began      time.Time                  // before the first try: no lease of its claims began earlier
	alone      bool                       // of the reserved task; its slot is recovery's, whoever found it: all are free
	ownOnly    bool                       // the next try only finds what a try before has claimed
}

// newClaim prepares a claim of this process; end must follow.
func (r *Runner) newClaim(deliveries map[string]string, takeover bool) *claimTx {
	c := &claimTx{
		r: r, deliveries: deliveries, attempts: map[string]context.Context{}, began: r.deps.Now(),
		req: taskstate.ClaimRequest{
			Owner: r.owner(), Process: r.cfg.Process, Actor: local.Worker(r.cfg.Process), Takeover: takeover,
		},
	}
	r.asking.Note(c.req.Owner, false)
	return c
}

// end follows when what was claimed runs, or nobody asks any more.
func (c *claimTx) end() { c.r.asking.End(c.req.Owner) }

// decide asks the state machine about each task; only one of them may be reserved.
func (c *claimTx) decide(ctx context.Context, _ taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
	c.m, c.types = m, make(map[string]string, len(tasks))
	out := make([]taskstate.Decision, len(tasks))
	for i, t := range tasks {
		c.types[t.ID] = t.Type
		if t.Status == taskstate.StatusRunning && t.LeaseOwner == c.req.Owner { // by a try before
			out[i] = taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerClaimed}
			switch {
			case c.reserved != t.ID:
			case c.reserving: // its fence is that of the holder before: no claim
				out[i].Answer = taskstate.AnswerReserved
			default: // the process has another reservation by now: this one ends by itself
				out[i].Answer = taskstate.AnswerKept
			}
			continue
		}
		if c.ownOnly {
			out[i] = taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
			continue
		}
		req := c.req
		req.Held = c.r.claims.Has(t.ID, t.Fence) || c.r.asking.Has(t.LeaseOwner)
		req.Takeover = req.Takeover && c.r.health.MayTakeOver() <= 0 // it may have stood still since it began to ask
		req.Delivery = c.deliveries[t.ID]
		if k := c.r.handler(t.Type); k != nil {
			req.Noun = k.Describe().Noun
		}
		req.Reserve = c.reserving && (c.reserved == "" || c.reserved == t.ID)
		out[i] = taskstate.Claim(c.r.cfg.Policy, m, t, req)
		if out[i].Answer == taskstate.AnswerReserved {
			c.reserved = t.ID
		}
		if out[i].Answer == taskstate.AnswerClaimed && !c.r.silent() {
			if text := attemptTrace(c.attempt(ctx, t)); text != "" {
				out[i].Change.AttemptTrace = text
			}
		}
	}
	return out, nil
}

// attempt is the context of a claim of t, with its span: the same one when the transaction runs again.
func (c *claimTx) attempt(ctx context.Context, t taskstate.Task) context.Context {
	if c.attempts[t.ID] == nil {
		c.attempts[t.ID] = c.r.beginAttempt(ctx, t)
	}
	return c.attempts[t.ID]
}

// beginAttempt starts the span of a claim of t inside its transaction, as child of the accepting request (OTel messaging
// conventions: "process"). It links to what made the message, and a retry or takeover to the attempt before. Unrecorded spans
// cost no attributes. The context has the span and the task's id, for log lines and calls; it never ends by itself.
func (r *Runner) beginAttempt(ctx context.Context, t taskstate.Task) context.Context {
	ctx = local.TaskContext(ctx, &t)
	parent := trace.SpanContextFromContext(ctx)
	ctx, span := r.deps.Tracer.Start(ctx, delivery.SpanName("process", delivery.DestinationOf(r.deps.Queue, t.Type)), trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		if parent.IsValid() {
			span.AddLink(trace.Link{SpanContext: parent})
		}
		if before := telemetry.SpanContext(t.AttemptTrace); before.IsValid() {
			span.AddLink(trace.Link{SpanContext: before, Attributes: []attribute.KeyValue{attribute.String("millweir.link", "attempt before")}})
		}
	}
	return ctx
}

// attemptTrace is what the row keeps of an attempt: "" when nothing records it, so that an untraced claim writes no more.
func attemptTrace(attempt context.Context) string {
	if !trace.SpanFromContext(attempt).IsRecording() {
		return ""
	}
	return telemetry.Traceparent(attempt)
}

// onTransition lets the kinds write what belongs to the claims.
func (c *claimTx) onTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
	if err := crash.Fault("worker.in_claim"); err != nil {
		return err
	}
	return c.r.onTransition(ctx, tx, m, changed, c.types, nil)
}

// byIDs claims the tasks of the deliveries.
func (c *claimTx) byIDs(ctx context.Context, ids []string) ([]taskstate.Outcome, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	outs, err := c.r.store.Apply(ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: c.decide, OnTransition: c.onTransition})
	c.heard(outs, err)
	if err != nil {
		return nil, fmt.Errorf("claim %d tasks: %w", len(ids), err)
	}
	return outs, nil
}

// heard notes whether it is known what the call has claimed. A failure that did nothing leaves an older doubt as it is.
func (c *claimTx) heard(outs []taskstate.Outcome, err error) {
	switch {
	case errors.Is(err, taskstate.ErrOutcomeUnknown):
		c.r.asking.Note(c.req.Owner, true)
	case err == nil:
		c.r.asking.Note(c.req.Owner, len(unheard(outs)) > 0)
	}
}

// unheard are the tasks of which it is not known whether they were claimed.
func unheard(outs []taskstate.Outcome) (ids []string) {
	for _, o := range outs {
		if errors.Is(o.Err, taskstate.ErrOutcomeUnknown) {
			ids = append(ids, o.TaskID)
		}
	}
	return ids
}

// sweep claims due tasks of one status.
func (c *claimTx) sweep(ctx context.Context, status taskstate.Status, limit int) ([]taskstate.Outcome, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	outs, err := c.r.store.Sweep(ctx, taskstate.Sweep{
		Status: status, WakeBefore: taskstate.In(0), Limit: limit,
		Exclude: c.r.claims.Ids(maxExclude), Decide: c.decide, OnTransition: c.onTransition,
	})
	c.heard(outs, err)
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", status, err)
	}
	return outs, nil
}

// onTransition calls the OnTransition hook of each handler with its own changes.
func (r *Runner) onTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision,
	types map[string]string, payloads map[string]any,
) error {
	return ByType(changed, types, func(typ string, of []taskstate.Decision) error {
		k := r.handler(typ)
		if k == nil {
			return nil
		}
		return guard(func() error { return k.OnTransition(ctx, tx, m, of, payloads) })
	})
}

// ByType calls f with the changes of status of each type, in the order of the types' names. types has them by task id.
// Reservations change no status and belong to nobody.
func ByType(changed []taskstate.Decision, types map[string]string, f func(typ string, changed []taskstate.Decision) error) error {
	byType := map[string][]taskstate.Decision{}
	for _, d := range changed {
		if d.Change != nil && !d.Change.Silent {
			byType[types[d.TaskID]] = append(byType[types[d.TaskID]], d)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(byType)) {
		if err := f(typ, byType[typ]); err != nil {
			return fmt.Errorf("write what belongs to %d %s tasks: %w", len(byType[typ]), typ, err)
		}
	}
	return nil
}

// guard turns a hook's panic into an error: one bad task must not end the process.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p}
		}
	}()
	return f()
}

// started takes over a claim that was won: it is held from here on.
// recovery says whose slot it uses; adopt, that its entry is with whoever read it.
func (r *Runner) started(ctx context.Context, c *claimTx, o taskstate.Outcome, recovery, adopt bool) {
	if o.Before.Status == taskstate.StatusRunning && o.Change != nil {
		r.m.Takeovers.Inc()
		crash.Point("recovery.after_takeover")
	}
	if o.Before.Status == taskstate.StatusRetrying && !o.Before.NextRetryAt.IsZero() {
		crash.Point("recovery.after_retry_claim")
		r.m.Lateness.Observe(max(o.After.UpdatedAt.Sub(o.Before.NextRetryAt), 0).Seconds())
	}
	now := r.deps.Now()
	entry := o.After.Delivery
	if adopt {
		entry = r.transport.EntryOf(o.After)
	}
	h := &local.Claim{
		Task: o.After, Token: taskstate.Token{Epoch: c.m.Epoch, Fence: o.After.Fence}, Owner: o.After.LeaseOwner,
		Delivery: entry, Recovery: recovery,
		Began: now, Asked: c.began, Reported: now, StageBegan: now, Progress: o.After.Progress,
	}
	h.Base, h.Span = ctx, silentSpan
	if !r.silent() {
		h.Attempt = c.attempt(ctx, o.Before)
		h.Span = trace.SpanFromContext(h.Attempt)
		r.describe(h)
	}
	r.slots.Ran(recovery)
	empty, _ := r.claims.Empty()
	h.Alone = empty && (r.slots.UsableNow() == 1 || r.isolated.Active())
	r.claims.Add(h)
	if adopt {
		r.effects.Adopt(h)
	}
	select {
	case r.jobs <- h: // somebody waits for it
	default:
		go r.worker(h)
	}
}

// silentSpan is the span of an attempt when nothing records.
var silentSpan = trace.SpanFromContext(context.Background())

// describe adds what is known once the claim is committed.
func (r *Runner) describe(h *local.Claim) {
	if !h.Span.IsRecording() {
		return
	}
	h.Span.SetAttributes(append(delivery.DestinationOf(r.deps.Queue, h.Task.Type),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.message.id", h.Delivery),
		attribute.String("messaging.client.id", r.cfg.Process),
		attribute.String("millweir.task.id", h.Task.ID),
		attribute.String("millweir.task.type", h.Task.Type),
		attribute.Int("millweir.task.attempt", h.Task.AttemptCount+1),
		attribute.Int64("millweir.task.fence", h.Token.Fence),
	)...)
}

// answer does what the claim's answer for one task asks for (the table of design D4), with the deliveries that brought it;
// none: recovery found it. It reports whether the task runs now.
func (r *Runner) answer(ctx context.Context, c *claimTx, o taskstate.Outcome, ds []ingestq.Delivery) bool {
	if o.Err != nil { // the promise in the row brings the task again, later each time; until then an entry may stay pending
		r.health.Warn(ctx, "runner: claim one task", o.Err, slog.String("task_id", o.TaskID))
		r.transport.AckFailed(ds)
		return false
	}
	found := len(ds) == 0 // by recovery
	switch o.Answer {
	case taskstate.AnswerClaimed:
		if !found {
			r.transport.AckOthers(ds[1:], ds[0].ID)
			r.transport.AckReplaced(o.Before.Delivery, ds[0].ID)
		}
		r.started(ctx, c, o, found || c.alone, found)
		return true
	case taskstate.AnswerReserved:
		if found {
			crash.Point("solo.after_reserve")
		} else {
			r.transport.AckOthers(ds[1:], ds[0].ID)
			ds = ds[:1]
		}
		r.isolated.Reserve(&local.Reservation{Outcome: o, Epoch: c.m.Epoch, Deliveries: ds, Renewed: r.deps.Now()})
	case taskstate.AnswerIsolated: // this process has a reservation already
		switch {
		case found:
		case o.Before.Status == taskstate.StatusQueued:
			r.transport.AckOthers(ds[1:], ds[0].ID)
			r.transport.HandBack(ctx, ds[:1])
		default: // its holder's process or recovery finds it in the table
			r.transport.AckOthers(ds[1:], ds[0].ID)
			r.transport.AckOthers(ds[:1], o.Before.Delivery)
		}
	case taskstate.AnswerNotDue:
		r.m.Count(local.ResultNotDue, len(ds))
		r.transport.AckOthers(ds, o.Before.Delivery)
	case taskstate.AnswerBusy:
		r.m.Count(local.ResultBusy, len(ds))
		r.transport.AckOthers(ds, o.Before.Delivery)
	case taskstate.AnswerDead:
		if found {
			crash.Point("recovery.after_crash_limit")
		}
		r.m.Count(local.ResultDead, 1)
		r.transport.AckOthers(ds, o.After.Delivery)
		r.effects.Died(o.After, c.m.Epoch, r.transport.EntryOf(o.After))
	case taskstate.AnswerSkipped:
		r.m.Count(local.ResultSkipped, len(ds))
		for _, d := range ds {
			r.effects.Died(o.Before, c.m.Epoch, d.ID) // acknowledges; a dead letter that is owed goes first
		}
	case taskstate.AnswerKept: // nothing else is taken during a reservation
		r.transport.HandBack(ctx, ds)
	case taskstate.AnswerApplied, taskstate.AnswerLost, taskstate.AnswerRefused:
		r.health.Warn(ctx, "runner: claim one task", errUnexpected(o), slog.String("task_id", o.TaskID))
		r.transport.AckFailed(ds)
	}
	return false
}

// reservedIn reports whether one of the outcomes is a reservation that was written.
func reservedIn(outs []taskstate.Outcome) bool {
	return slices.ContainsFunc(outs, func(o taskstate.Outcome) bool { return o.Answer == taskstate.AnswerReserved && o.Err == nil })
}
