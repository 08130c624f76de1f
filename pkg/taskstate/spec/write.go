package spec

import (
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Write is the row after a store has written c at an instant: all that a store does to a task.
func Write(t taskstate.Task, c *taskstate.Change, at time.Time) taskstate.Task {
	t.Status, t.Fence = c.To, c.NewFence
	t.AttemptCount, t.CrashCount, t.ThrottleCount = c.AttemptCount, c.CrashCount, c.ThrottleCount
	t.NextRetryAt = moved(c.NextRetry, at, t.NextRetryAt)
	t.LeaseExpiresAt = moved(c.Lease, at, t.LeaseExpiresAt)
	t.WakeAt = moved(c.Wake, at, t.WakeAt)
	t.EnqueuedAt = moved(c.Enqueue, at, t.EnqueuedAt)
	t.LeaseOwner, t.EnqueueCount = c.LeaseOwner, c.EnqueueCount
	t.DLQ, t.Delivery, t.AttemptTrace, t.Progress = c.DLQ, c.Delivery, c.AttemptTrace, c.Progress
	t.LastError, t.ErrorMessage, t.ErrorCode, t.Result = c.LastError, c.ErrorMessage, c.ErrorCode, c.Result
	t.UpdatedAt = at
	return t
}

// moved is what a time column says once d was written.
func moved(d taskstate.Delay, at, before time.Time) time.Time {
	switch d.Kind {
	case taskstate.DelayNever:
		return time.Time{}
	case taskstate.DelayIn:
		return at.Add(d.In.Truncate(time.Microsecond))
	case taskstate.DelayKeep:
	}
	return before
}

// transition is the audit row that goes with c, of the row after it; a claim's says what brought it.
func transition(t taskstate.Task, c *taskstate.Change) taskstate.Transition {
	delivery := ""
	if t.Status == taskstate.StatusRunning {
		delivery = t.Delivery
	}
	return taskstate.Transition{
		TaskID: t.ID, From: c.From, To: t.Status, Reason: c.Reason,
		AttemptCount: t.AttemptCount, CrashCount: t.CrashCount, Fence: t.Fence, Epoch: c.Epoch,
		Actor: c.Actor.String(), Message: c.Message,
		LeaseExpiresAt: t.LeaseExpiresAt, NextRetryAt: t.NextRetryAt, Delivery: delivery, ErrorCode: t.ErrorCode, CreatedAt: t.UpdatedAt,
	}
}
