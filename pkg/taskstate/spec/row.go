package spec

import (
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// statusOf are the states as package taskstate names them.
var statusOf = [...]taskstate.Status{
	taskstate.StatusNone, taskstate.StatusQueued, taskstate.StatusRunning, taskstate.StatusRetrying,
	taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusSuspended, taskstate.StatusCancelled,
}

// ownerText are the owners as lease_owner has them.
var ownerText = [...]string{"", "gone/0", "w0/now", "w0/before", "w1/now", "w1/before"}

// processName is the name of worker w's process.
func processName(w int) string { return [...]string{"w0", "w1"}[w] }

// stateOf is the reverse of statusOf.
func stateOf(s taskstate.Status) State {
	for i, known := range statusOf {
		if known == s {
			return State(i)
		}
	}
	return stNone
}

// ownerFrom is the reverse of ownerText.
func ownerFrom(text string) Owner {
	for i, known := range ownerText {
		if known == text {
			return Owner(i)
		}
	}
	return ownerGone
}

// instant is a time of that age.
func (a Age) instant() time.Time {
	switch a {
	case ageAhead:
		return epoch.Add(modelLong)
	case agePast:
		return epoch.Add(-modelSlack)
	case ageNone:
	}
	return time.Time{}
}

// ageOf is the reverse of instant; a time that is now has been reached.
func ageOf(t time.Time) Age {
	switch {
	case t.IsZero():
		return ageNone
	case t.After(epoch):
		return ageAhead
	}
	return agePast
}

// taskID is the id of task t.
func taskID(t int) string { return [...]string{"T1", "T2"}[t] }

// task is the row as package taskstate reads it.
func (m *Model) task(r *Row, t int) taskstate.Task {
	out := taskstate.Task{
		ID: taskID(t), Status: statusOf[r.State], MaxAttempts: m.cfg.MaxAttempts,
		AttemptCount: int(r.Attempts), CrashCount: int(r.Crashes), ThrottleCount: int(r.Throttles), Fence: int64(r.Fence),
		LeaseOwner: ownerText[r.Owner], NextRetryAt: r.Due.instant(),
		WakeAt: epoch, EnqueuedAt: epoch, DLQ: taskstate.DLQNone,
	}
	if r.Lease != ageNone {
		out.WakeAt = r.Lease.instant()
	}
	if r.Stale {
		out.WakeAt, out.EnqueuedAt = epoch.Add(-modelLong), epoch.Add(-modelLong)
	}
	switch {
	case r.Owed:
		out.DLQ = taskstate.DLQOwed
	case r.Marked:
		out.DLQ = taskstate.DLQWritten
	}
	if r.Delivery != 0 {
		out.Delivery = string('0' + rune(r.Delivery))
	}
	return out
}

// take makes the row what a written task says; the ghosts stay.
func (r *Row) take(t taskstate.Task) {
	r.State, r.Fence = stateOf(t.Status), uint8(t.Fence)
	r.Attempts, r.Crashes, r.Throttles = uint8(t.AttemptCount), uint8(t.CrashCount), uint8(min(t.ThrottleCount, 1))
	r.Lease, r.Due = ageOf(t.LeaseExpiresAt()), ageOf(t.NextRetryAt)
	r.Stale = r.State == stQueued && t.WakeAt.Before(epoch.Add(-modelSlack))
	r.Owner = ownerFrom(t.LeaseOwner)
	r.Owed, r.Marked = t.DLQ == taskstate.DLQOwed, t.DLQ == taskstate.DLQWritten
	r.Delivery = 0
	if t.Delivery != "" {
		r.Delivery = t.Delivery[0] - '0'
	}
}

// commit is one transaction on one row: it asks for a decision and writes it, with its transition.
func (m *Model) commit(w *World, t int, decide func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision) Result {
	r := &w.Rows[t]
	before := m.task(r, t)
	d := decide(m.moment(w), before)
	res := Result{Task: t, Answer: d.Answer, Change: d.Change}
	if d.Change == nil {
		return res
	}
	from := *r
	after := Write(before, d.Change, epoch)
	r.take(after)
	if d.Change.Enqueue.Kind == taskstate.DelayIn {
		w.refresh(t)
	}
	if d.Change.Silent {
		r.Taken = r.Taken || (d.Answer == taskstate.AnswerReserved && from.State == stRunning && from.Lease == agePast)
		return res
	}
	res.Transition = transition(after, d.Change)
	r.Log = Logged{State: r.State, Fence: r.Fence, Attempts: r.Attempts, Crashes: r.Crashes}
	r.Taken, r.Slept = false, false
	if from.State == stRunning && r.State != stRunning {
		r.Ended = max(r.Ended, from.Fence+1)
	}
	if r.State == stRunning {
		r.Claimant = r.Owner
	}
	if r.State == stDead {
		r.Deaths |= 1 << r.Fence
	}
	return res
}

// refresh notes that a task was promised now: no entry and no look at the read watermark is younger than its promise.
func (w *World) refresh(t int) {
	for i := range w.Stream {
		w.Stream[i].Since &^= 1 << t
	}
	for i := range w.Loops {
		if w.Loops[i].At == loopWatermark {
			w.Loops[i].Mask &^= 1 << t
		}
	}
}

// Write is the row after a store has written c at an instant: all that a store does to a task.
func Write(t taskstate.Task, c *taskstate.Change, at time.Time) taskstate.Task {
	t.Status, t.Fence = c.To, c.NewFence
	t.AttemptCount, t.CrashCount, t.ThrottleCount = c.AttemptCount, c.CrashCount, c.ThrottleCount
	t.NextRetryAt = moved(c.NextRetry, at, t.NextRetryAt)
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
	case taskstate.DelayIn, taskstate.DelayLease: // a lease for each task allows more than one for all of a process's
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
		LeaseExpiresAt: t.LeaseExpiresAt(), NextRetryAt: t.NextRetryAt, Delivery: delivery, ErrorCode: t.ErrorCode, CreatedAt: t.UpdatedAt,
	}
}
