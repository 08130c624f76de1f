package taskstate

import "fmt"

// The codes of a refusal (contract §2, §4).
const (
	CodeNotReplayable = "TASK_NOT_REPLAYABLE"
	CodeSuspended     = "TASK_SUSPENDED"
	CodeNotCancelable = "TASK_NOT_CANCELLABLE"
)

// RefusedError says that a person asked for what the task's state does not allow.
type RefusedError struct {
	Code   string // UPPER_SNAKE
	Status Status
}

// Error names the code and the state.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: the task is %s", e.Code, e.Status)
}

// refuse returns that code does not go with t's state.
func refuse(t Task, code string) Decision {
	return Decision{TaskID: t.ID, Answer: AnswerRefused, Err: &RefusedError{Code: code, Status: t.Status}}
}

// Retry is a person's wish to run t again now: RETRYING is made due, DEAD and CANCELLED are replayed.
func Retry(m DBClock, t Task, a Actor) Decision {
	switch t.Status {
	case StatusRetrying:
		c := change(t, m).to(StatusRetrying, ReasonRetryNow, a, "retry asked for")
		c.NextRetry, c.Wake = In(0), In(0)
		return decide(AnswerApplied, c)
	case StatusDead, StatusCancelled:
		return Replay(m, t, a, "retry asked for")
	case StatusSuspended:
		return refuse(t, CodeSuspended)
	case StatusNone, StatusQueued, StatusRunning, StatusSucceeded:
	}
	return refuse(t, CodeNotReplayable)
}

// Replay puts a DEAD or CANCELLED task back: all counts start at 0, a debt to the DLQ is cancelled.
func Replay(m DBClock, t Task, a Actor, message string) Decision {
	if t.Status != StatusDead && t.Status != StatusCancelled {
		return refuse(t, CodeNotReplayable)
	}
	if t.DLQ == DLQOwed {
		message += "; the DLQ entry that was owed is cancelled"
	}
	return decide(AnswerApplied, restart(m, t, ReasonReplayed, a, message))
}

// Resume puts a SUSPENDED task back, by an operator.
func Resume(m DBClock, t Task, a Actor, message string) Decision {
	if t.Status != StatusSuspended {
		return refuse(t, CodeNotReplayable)
	}
	return decide(AnswerApplied, restart(m, t, ReasonResumed, a, message))
}

// restart is a fresh QUEUED with every count at 0; the fence goes on.
func restart(m DBClock, t Task, r Reason, a Actor, message string) *Change {
	c := change(t, m).to(StatusQueued, r, a, message).queued()
	c.AttemptCount, c.CrashCount, c.ThrottleCount = 0, 0, 0
	c.DLQ, c.Progress = DLQNone, Progress{Stage: StageNone}
	c.LastError, c.ErrorMessage, c.ErrorCode = "", "", ""
	return c
}

// Cancel withdraws a task at once, whoever holds it; the fence is unchanged and the holder learns it at its next write (design D7).
func Cancel(m DBClock, t Task, a Actor, reason Reason, message string) Decision {
	switch t.Status {
	case StatusQueued, StatusRetrying, StatusRunning, StatusSuspended:
		return decide(AnswerApplied, change(t, m).to(StatusCancelled, reason, a, message))
	case StatusNone, StatusSucceeded, StatusDead, StatusCancelled:
	}
	return refuse(t, CodeNotCancelable)
}

// Suspend holds a task for a person, by an operator, at once.
func Suspend(m DBClock, t Task, a Actor, message string) Decision {
	switch t.Status {
	case StatusQueued, StatusRetrying, StatusRunning:
		return decide(AnswerApplied, change(t, m).to(StatusSuspended, ReasonSuspended, a, message))
	case StatusNone, StatusSucceeded, StatusDead, StatusSuspended, StatusCancelled:
	}
	return refuse(t, CodeNotReplayable)
}
