package taskstate

import (
	"encoding/json"
	"time"
)

// Holder is who finishes a task: the claim's token and the audit's actor.
type Holder struct {
	Token    Token
	Actor    Actor
	Progress Progress // how far its run came; Stage "": as far as the row says
}

// Holds reports whether the claim is still the one that the row names.
func (h Holder) Holds(m DBClock, t Task) bool {
	return t.Status == StatusRunning && t.Fence == h.Token.Fence && m.Epoch == h.Token.Epoch
}

// Succeed ends t well; result may be nil.
func Succeed(m DBClock, t Task, h Holder, result json.RawMessage, message string) Decision {
	if !h.Holds(m, t) {
		return leave(t, AnswerLost)
	}
	c := change(t, m).to(StatusSucceeded, ReasonDone, h.Actor, message)
	c.Result, c.ThrottleCount = result, 0
	c.LastError, c.ErrorMessage, c.ErrorCode = "", "", ""
	c.Progress.Stage, c.Progress.Percent = StageDone, 100
	c.LeaseOwner = t.LeaseOwner // who did it: to blank a column would cost every task
	return decide(AnswerApplied, c)
}

// Failure is the outcome of an attempt that did not succeed.
type Failure struct {
	Code       string // UPPER_SNAKE
	Cause      string // lastError: outermost context first, without secrets
	Message    string // errorMessage: the same for the user
	Permanent  bool   // no retry can cure it
	Suspend    bool   // a person has to look: no attempt is counted, and it goes before all else
	Throttled  bool   // the service asked to wait: no attempt is counted
	RetryAfter time.Duration
	Stalled    bool // no progress within the stage's limit
}

// Fail ends an attempt of t: RETRYING, or DEAD when attempts are used up or the cause is permanent, or SUSPENDED.
func Fail(p Policy, m DBClock, t Task, h Holder, f Failure) Decision {
	if !h.Holds(m, t) {
		return leave(t, AnswerLost)
	}
	var c *Change
	switch {
	case f.Suspend:
		c = change(t, m).to(StatusSuspended, ReasonSuspended, h.Actor, f.Cause)
	case f.Throttled && !f.Permanent:
		c = throttle(m, t, h, f)
	case f.Permanent || t.AttemptCount+1 >= t.MaxAttempts:
		c = die(p, m, t, h, f)
	default:
		c = again(p, m, t, h, f)
	}
	c.LastError, c.ErrorMessage, c.ErrorCode = Shorten(f.Cause, MaxErrorChars), Shorten(f.Message, MaxErrorChars), f.Code
	if h.Progress.Stage != "" {
		c.Progress = h.Progress
	}
	return decide(AnswerApplied, c)
}

// throttle waits as long as the service asked; the attempt does not count.
func throttle(m DBClock, t Task, h Holder, f Failure) *Change {
	c := change(t, m).to(StatusRetrying, ReasonThrottled, h.Actor, f.Cause)
	c.ThrottleCount++
	c.NextRetry = In(throttleDelay(c.ThrottleCount, f.RetryAfter))
	c.Wake = c.NextRetry
	return c
}

// again counts the attempt and waits for the next.
func again(p Policy, m DBClock, t Task, h Holder, f Failure) *Change {
	reason := ReasonFailed
	if f.Stalled {
		reason = ReasonStalled
	}
	c := change(t, m).to(StatusRetrying, reason, h.Actor, f.Cause)
	c.AttemptCount++
	c.ThrottleCount = 0
	c.NextRetry = In(p.Backoff(c.AttemptCount))
	c.Wake = c.NextRetry
	return c
}

// die counts the attempt and ends the task.
func die(p Policy, m DBClock, t Task, h Holder, f Failure) *Change {
	reason := ReasonExhausted
	if f.Permanent {
		reason = ReasonPermanent
	}
	c := change(t, m).to(StatusDead, reason, h.Actor, f.Cause)
	c.AttemptCount++
	c.ThrottleCount = 0
	return owe(p, c)
}

// owe notes the DLQ entry that a DEAD task needs; a sweep looks if nobody has written it in time.
// Where nothing is owed, the dead letter goes with the row if there is an outbox (design D11).
func owe(p Policy, c *Change) *Change {
	if p.DLQ {
		c.DLQ, c.Wake = DLQOwed, In(dlqGrace)
	} else {
		c.Deliver = true
	}
	return c
}

// HandBack returns a running task to the queue at a stop: no attempt is counted, it is due now.
func HandBack(m DBClock, t Task, h Holder, message string) Decision {
	if !h.Holds(m, t) {
		return leave(t, AnswerLost)
	}
	c := change(t, m).to(StatusQueued, ReasonHandedBack, h.Actor, message).queued()
	return decide(AnswerApplied, c)
}

// Withdraw ends a running task because what it builds is not wanted any more (SUPERSEDED or DELETED), by its holder.
func Withdraw(m DBClock, t Task, h Holder, reason Reason, message string) Decision {
	if !h.Holds(m, t) {
		return leave(t, AnswerLost)
	}
	return decide(AnswerApplied, change(t, m).to(StatusCancelled, reason, h.Actor, message))
}
