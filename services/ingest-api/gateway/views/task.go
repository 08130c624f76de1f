// Package views turns rows and messages into the JSON types of the wire.
package views

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Task renders a task for its user. It depends on the row alone, so that equal rows have equal ETags.
func Task(t taskstate.Task) wire.Task {
	of := uploadOf(t)
	return wire.Task{
		TaskID: t.ID, DocumentID: wire.NullText(t.DocumentID), KnowledgeBaseID: wire.NullText(t.KnowledgeBase),
		KnowledgeBase: wire.NullText(of.Base), FileName: wire.NullText(of.FileName),
		Type: t.Type, Channel: t.Channel, Status: t.Status, Stage: t.Progress.Stage, Progress: t.Progress.Percent,
		ProcessedSegments: t.Progress.Processed, TotalSegments: t.Progress.Total,
		AttemptCount: t.AttemptCount, MaxAttempts: t.MaxAttempts, CrashCount: t.CrashCount,
		NextRetryAt: wire.MaybeAt(t.NextRetryAt), ErrorCode: wire.NullText(t.ErrorCode),
		ErrorMessage: wire.NullText(t.ErrorMessage), LastError: wire.NullText(t.LastError),
		Waiting: WaitingOf(t), Warnings: warnings(t), CreatedAt: wire.At(t.CreatedAt), UpdatedAt: wire.At(t.UpdatedAt),
	}
}

// uploadOf is what a document's task says of its upload; zero: the task has no document. A base keeps its name, so the one in the
// payload is that of today.
func uploadOf(t taskstate.Task) (of ingest.Payload) {
	if t.Type != ingest.TypeDocument || json.Unmarshal(t.Payload, &of) != nil {
		return ingest.Payload{} // a workflow's payload is its caller's
	}
	return of
}

// warnings are those of a document's result.
func warnings(t taskstate.Task) []string {
	var found struct {
		Warnings []string `json:"warnings"`
	}
	if t.Type != ingest.TypeDocument || json.Unmarshal(t.Result, &found) != nil {
		return nil // a workflow's result is what its handler says
	}
	return found.Warnings
}

// WaitingOf says why a task that is neither running nor ended does not run (contract §10.3).
func WaitingOf(t taskstate.Task) *wire.Waiting {
	reserved := t.LeaseOwner != "" && !t.LeaseExpiresAt().IsZero()
	switch t.Status {
	case taskstate.StatusQueued:
		if reserved {
			return &wire.Waiting{Reason: wire.WaitAlone, Until: wire.MaybeAt(t.LeaseExpiresAt())}
		}
		return &wire.Waiting{Reason: wire.WaitQueue}
	case taskstate.StatusRetrying:
		if reserved {
			return &wire.Waiting{Reason: wire.WaitAlone, Until: wire.MaybeAt(t.LeaseExpiresAt())}
		}
		if t.ThrottleCount > 0 {
			return &wire.Waiting{Reason: wire.WaitThrottle, Until: wire.MaybeAt(t.NextRetryAt)}
		}
		return &wire.Waiting{Reason: wire.WaitBackoff, Until: wire.MaybeAt(t.NextRetryAt)}
	case taskstate.StatusSuspended:
		return &wire.Waiting{Reason: wire.WaitPerson}
	case taskstate.StatusNone, taskstate.StatusRunning, taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusCancelled:
	}
	return nil
}

func viewCarrier(e *outbox.Event) *wire.Carrier {
	if e == nil {
		return nil
	}
	return &wire.Carrier{
		ID: e.ID, Status: string(e.Status), Cause: string(e.Cause), AttemptCount: e.AttemptCount, NextRetryAt: wire.MaybeAt(e.NextRetryAt),
		LastError: wire.NullText(e.LastError), CreatedAt: wire.At(e.CreatedAt), SentAt: wire.MaybeAt(e.SentAt),
	}
}

// Explanation renders where a task is; traces is OTEL_UI_URL.
func Explanation(e ingest.Explanation, traces string) wire.Explanation {
	trace := traceOf(e.Task.TraceParent)
	return wire.Explanation{
		Attempts: web.Each(e.Attempts, func(a tasks.Attempt) wire.Attempt {
			return wire.Attempt{
				StartedAt: wire.At(a.Began), EndedAt: wire.MaybeAt(a.Ended), Actor: a.Actor, Reason: wire.NullText(a.Reason), ErrorCode: wire.NullText(a.Code),
				Message: wire.NullText(a.Message), Delivery: wire.NullText(a.Delivery),
			}
		}),
		TraceID: wire.NullText(trace), TraceURL: wire.NullText(traceURL(traces, trace)),
		SQL: []string{
			"SELECT * FROM ingest_task WHERE id = '" + e.Task.ID + "'",
			"SELECT * FROM ingest_task_transition WHERE task_id = '" + e.Task.ID + "' ORDER BY id",
		},
		Event: viewCarrier(e.Event),
		Task:  Task(e.Task), Text: e.Words(), Sentences: web.Each(e.Sentences, sentence), Holder: wire.NullText(e.Holder), HeldUntil: wire.MaybeAt(e.HeldUntil),
		Delivery: wire.NullText(e.Delivery), Place: place(e.Place), Next: wire.NullText(e.Next.String()), NextSaid: sentence(e.Next), NextAt: wire.MaybeAt(e.NextAt), Now: wire.At(e.Now),
		LastChanges: web.Each(e.LastChanges, wire.TransitionOf),
	}
}

func sentence(s tasks.Sentence) wire.Said {
	return wire.Said{Template: s.Template, Args: s.Args}
}

func place(p *ingestq.Place) *wire.Place {
	if p == nil {
		return nil
	}
	return &wire.Place{Stream: p.Stream, Consumer: wire.NullText(p.Consumer), IdleSeconds: secondsOrNull(p.Idle), Deliveries: p.Deliveries}
}

// FailureGroup renders a group of failures.
func FailureGroup(g taskstate.FailureGroup) wire.FailureGroup {
	return wire.FailureGroup{
		GroupID: g.ID, Pattern: g.Cause.Pattern, ErrorCode: wire.NullText(g.Cause.Code), Permanent: g.Permanent, Failures: g.Failures, Tasks: g.Tasks,
		FirstAt: wire.At(g.FirstAt), LastAt: wire.At(g.LastAt), Stages: g.Stages, Bases: web.Each(g.Bases, func(id string) string { return id }),
		Error: g.Sample, Remedy: wire.NullText(g.Message), TaskID: g.SampleID,
	}
}

// traceOf is the trace id of a W3C traceparent; empty: none.
func traceOf(parent string) string {
	if s := telemetry.SpanContext(parent); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}

// traceURL is where people look at a trace.
func traceURL(template, trace string) string {
	if template == "" || trace == "" {
		return ""
	}
	return strings.ReplaceAll(template, TraceMark, trace)
}

// TraceMark stands in OTEL_UI_URL for the id of a trace.
const TraceMark = "{traceId}"

func Inspection(t taskstate.Task) wire.InspectedTask {
	return wire.InspectedTask{
		Task: Task(t), UserID: t.UserID, WorkflowID: wire.NullText(t.WorkflowID), ChatID: wire.NullText(t.ChatID),
		FilePath: wire.NullText(t.FilePath), ThrottleCount: t.ThrottleCount, Fence: t.Fence, LeaseOwner: wire.NullText(t.LeaseOwner),
		LeaseExpiresAt: wire.MaybeAt(t.LeaseExpiresAt()), WakeAt: wire.MaybeAt(wakeOf(t)), EnqueuedAt: wire.MaybeAt(t.EnqueuedAt),
		EnqueueCount: t.EnqueueCount, DLQState: t.DLQ, Delivery: wire.NullText(t.Delivery), IdempotencyKey: wire.NullText(t.IdempotencyKey),
		TraceParent: wire.NullText(t.TraceParent), RequestID: wire.NullText(t.RequestID),
	}
}

// Worker renders a process with its tasks.
func Worker(w ingest.Worker) wire.Worker {
	var slots *int
	if w.Slots >= 0 {
		slots = &w.Slots
	}
	return wire.Worker{
		Name: w.Name, Alive: w.Alive, StartedAt: wire.At(w.StartedAt), LeaseUntil: wire.At(w.LeaseUntil),
		DrainAt: wire.MaybeAt(w.DrainAt), DrainedAt: wire.MaybeAt(w.DrainedAt), Running: w.Runs, More: w.Cut, Slots: slots,
		Tasks: web.Each(w.Tasks, Task),
	}
}

func Stats(s ingest.Stats) wire.Stats {
	return wire.Stats{
		Counts: everyStatus(s.Tasks), StreamLength: s.StreamLength, RetryLength: s.RetryLength,
		SuspendedLength: s.SuspendedLength, Recent: everyStatus(s.Recent),
		Minutes: web.Each(s.Minutes, func(m ingest.Minute) wire.Minute { return wire.Minute{At: wire.At(m.At), Changes: m.Changes} }),
		Pace:    pace(s.Pace),
	}
}

// History shows what ended in each part of a span.
func History(h ingest.History) wire.History {
	return wire.History{StepSeconds: int(h.Step.Seconds()), Buckets: web.Each(h.Buckets, func(b ingest.Bucket) wire.Bucket {
		v := wire.Bucket{At: wire.At(b.At), Succeeded: b.Succeeded, Dead: b.Dead, AtLeast: b.AtLeast, Sampled: b.Sampled}
		if b.Sampled > 0 {
			v.SecondsHalf, v.SecondsMost = new(b.Half.Seconds()), new(b.Most.Seconds())
		}
		return v
	})}
}

// TaskCounts shows counts by status, stage and base.
func TaskCounts(n ingest.TaskCounts) wire.TaskCounts {
	return wire.TaskCounts{Counts: counted(n.Tasks), Stages: counted(n.Stages), Bases: web.Each(n.Bases, func(b ingest.Base) wire.BaseTasks {
		return wire.BaseTasks{KnowledgeBaseID: b.ID, Name: b.Name, Counts: counted(b.Counts.Tasks)}
	})}
}

// counted is an object for no counts too.
func counted[K comparable](n map[K]int64) map[K]int64 {
	if n == nil {
		return map[K]int64{}
	}
	return n
}

func pace(p ingest.Pace) wire.Pace {
	return wire.Pace{
		Stages: p.Stages, PerMinute: p.PerMinute, OldestWaitingSeconds: secondsOrNull(p.OldestWaiting), SecondsLeft: secondsOrNull(p.Left),
		SecondsHalf: secondsOrNull(p.Half), SecondsMost: secondsOrNull(p.Most),
	}
}

// secondsOrNull is nil for no time.
func secondsOrNull(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}

// everyStatus is counts with a zero for each status that has none.
func everyStatus(counts map[taskstate.Status]int64) map[taskstate.Status]int64 {
	out := map[taskstate.Status]int64{}
	for _, s := range taskstate.Statuses() {
		out[s] = counts[s]
	}
	return out
}

// IfMatch is the request's condition on what it changes, which the application judges under the row's lock; nil: none.
func IfMatch(c *gin.Context) func(current any) error {
	wanted := c.Request.Header.Values("If-Match")
	if len(wanted) == 0 {
		return nil
	}
	return func(current any) error {
		if !web.Matches(wanted, web.ETag(viewOf(current)), false) {
			return ingest.ErrChanged
		}
		return nil
	}
}

// viewOf is what the caller has seen of a row.
func viewOf(current any) any {
	switch row := current.(type) {
	case taskstate.Task:
		return Task(row)
	case ingest.Document:
		return Document(row)
	case ingest.Base:
		return Base(row)
	}
	panic(fmt.Sprintf("gateway: no view of %T", current))
}

// wakeOf is when somebody must look at a task; zero: nobody.
func wakeOf(t taskstate.Task) time.Time {
	if t.Status == taskstate.StatusSucceeded {
		return time.Time{}
	}
	return t.WakeAt
}
