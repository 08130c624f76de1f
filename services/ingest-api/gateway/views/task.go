// Package views turns rows and messages into the JSON types of the wire.
package views

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Task renders a task for its user. It depends on the row alone, so that equal rows have equal ETags.
func Task(t taskstate.Task) wire.Task {
	return wire.Task{
		TaskID: t.ID, DocumentID: wire.NullText(t.DocumentID), KnowledgeBaseID: wire.NullText(t.KnowledgeBase),
		Type: t.Type, Channel: t.Channel, Status: t.Status, Stage: t.Progress.Stage, Progress: t.Progress.Percent,
		ProcessedSegments: t.Progress.Processed, TotalSegments: t.Progress.Total,
		AttemptCount: t.AttemptCount, MaxAttempts: t.MaxAttempts, CrashCount: t.CrashCount,
		NextRetryAt: wire.MaybeAt(t.NextRetryAt), ErrorCode: wire.NullText(t.ErrorCode),
		ErrorMessage: wire.NullText(t.ErrorMessage), LastError: wire.NullText(t.LastError),
		Waiting: WaitingOf(t), Warnings: warnings(t), CreatedAt: wire.At(t.CreatedAt), UpdatedAt: wire.At(t.UpdatedAt),
	}
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

func Transition(t taskstate.Transition) wire.Transition {
	return wire.Transition{
		ID: ID(t.ID), FromStatus: wire.NullText(t.From), ToStatus: t.To, Reason: t.Reason, AttemptCount: t.AttemptCount,
		CrashCount: t.CrashCount, Fence: t.Fence, Actor: t.Actor, Message: t.Message, ErrorCode: wire.NullText(t.ErrorCode),
		NextRetryAt: wire.MaybeAt(t.NextRetryAt), CreatedAt: wire.At(t.CreatedAt),
	}
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

func Explanation(e ingest.Explanation) wire.Explanation {
	return wire.Explanation{
		Event: viewCarrier(e.Event),
		Task:  Task(e.Task), Text: e.Words, Holder: wire.NullText(e.Holder), HeldUntil: wire.MaybeAt(e.HeldUntil),
		Delivery: wire.NullText(e.Delivery), Next: wire.NullText(e.Next), NextAt: wire.MaybeAt(e.NextAt), Now: wire.At(e.Now),
		LastChanges: web.Each(e.LastChanges, Transition),
	}
}

func Inspection(t taskstate.Task) wire.InspectedTask {
	return wire.InspectedTask{
		Task: Task(t), UserID: t.UserID, WorkflowID: wire.NullText(t.WorkflowID), ChatID: wire.NullText(t.ChatID),
		FilePath: wire.NullText(t.FilePath), ThrottleCount: t.ThrottleCount, Fence: t.Fence, LeaseOwner: wire.NullText(t.LeaseOwner),
		LeaseExpiresAt: wire.MaybeAt(t.LeaseExpiresAt()), WakeAt: wire.MaybeAt(wakeOf(t)), EnqueuedAt: wire.MaybeAt(t.EnqueuedAt),
		EnqueueCount: t.EnqueueCount, DLQState: t.DLQ, Delivery: wire.NullText(t.Delivery), IdempotencyKey: wire.NullText(t.IdempotencyKey),
		TraceParent: wire.NullText(t.TraceParent), RequestID: wire.NullText(t.RequestID),
	}
}

func Stats(s ingest.Stats) wire.Stats {
	return wire.Stats{
		Counts: everyStatus(s.Tasks), StreamLength: s.StreamLength, RetryLength: s.RetryLength,
		SuspendedLength: s.SuspendedLength, Recent: everyStatus(s.Recent),
	}
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
