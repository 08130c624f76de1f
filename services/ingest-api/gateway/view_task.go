package gateway

import (
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The reasons for which a task waits.
const (
	waitQueue    = "QUEUED"        // for a free worker
	waitLast     = "RUNS_ALONE"    // a process empties itself to run it alone (design D6)
	waitBackoff  = "RETRY_BACKOFF" // for nextRetryAt after a failure
	waitThrottle = "THROTTLED"     // for nextRetryAt, as a service asked
	waitPerson   = "SUSPENDED"     // for an operator
)

// waitView says what a task waits for; until null: nobody knows.
type waitView struct {
	Reason string  `json:"reason"`
	Until  *string `json:"until"`
}

// taskView is contract §4's task.
type taskView struct {
	TaskID            string           `json:"taskId"`
	DocumentID        *string          `json:"documentId"`
	KnowledgeBaseID   *string          `json:"knowledgeBaseId"`
	Type              string           `json:"type"`
	Channel           string           `json:"channel"`
	Status            taskstate.Status `json:"status"`
	Stage             taskstate.Stage  `json:"stage"`
	Progress          int              `json:"progress"` // percent
	ProcessedSegments int              `json:"processedSegments"`
	TotalSegments     int              `json:"totalSegments"`
	AttemptCount      int              `json:"attemptCount"`
	MaxAttempts       int              `json:"maxAttempts"`
	CrashCount        int              `json:"crashCount"`
	NextRetryAt       *string          `json:"nextRetryAt"`
	ErrorCode         *string          `json:"errorCode"`
	ErrorMessage      *string          `json:"errorMessage"`
	LastError         *string          `json:"lastError"`
	Waiting           *waitView        `json:"waiting"`
	CreatedAt         string           `json:"createdAt"`
	UpdatedAt         string           `json:"updatedAt"`
}

// viewTask renders a task for its user. It depends on the row alone, so that equal rows have equal ETags.
func viewTask(t taskstate.Task) taskView {
	return taskView{
		TaskID: t.ID, DocumentID: optional(t.DocumentID), KnowledgeBaseID: optional(t.KnowledgeBase),
		Type: t.Type, Channel: t.Channel, Status: t.Status, Stage: t.Progress.Stage, Progress: t.Progress.Percent,
		ProcessedSegments: t.Progress.Processed, TotalSegments: t.Progress.Total,
		AttemptCount: t.AttemptCount, MaxAttempts: t.MaxAttempts, CrashCount: t.CrashCount,
		NextRetryAt: optionalTime(t.NextRetryAt), ErrorCode: optional(t.ErrorCode),
		ErrorMessage: optional(t.ErrorMessage), LastError: optional(t.LastError),
		Waiting: waitingOf(t), CreatedAt: formatTime(t.CreatedAt), UpdatedAt: formatTime(t.UpdatedAt),
	}
}

// waitingOf says why a task that is neither running nor ended does not run (contract §10.3).
func waitingOf(t taskstate.Task) *waitView {
	reserved := t.LeaseOwner != "" && !t.LeaseExpiresAt.IsZero()
	switch t.Status {
	case taskstate.StatusQueued:
		if reserved {
			return &waitView{Reason: waitLast, Until: optionalTime(t.LeaseExpiresAt)}
		}
		return &waitView{Reason: waitQueue}
	case taskstate.StatusRetrying:
		if reserved {
			return &waitView{Reason: waitLast, Until: optionalTime(t.LeaseExpiresAt)}
		}
		if t.ThrottleCount > 0 {
			return &waitView{Reason: waitThrottle, Until: optionalTime(t.NextRetryAt)}
		}
		return &waitView{Reason: waitBackoff, Until: optionalTime(t.NextRetryAt)}
	case taskstate.StatusSuspended:
		return &waitView{Reason: waitPerson}
	case taskstate.StatusNone, taskstate.StatusRunning, taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusCancelled:
	}
	return nil
}

// transitionView is one row of a task's log.
type transitionView struct {
	ID           string            `json:"id"`
	FromStatus   *taskstate.Status `json:"fromStatus"` // null: the task was made
	ToStatus     taskstate.Status  `json:"toStatus"`
	Reason       taskstate.Reason  `json:"reason"`
	AttemptCount int               `json:"attemptCount"`
	CrashCount   int               `json:"crashCount"`
	Fence        int64             `json:"fence"`
	Actor        string            `json:"actor"`
	Message      string            `json:"message"`
	ErrorCode    *string           `json:"errorCode"` // the task's after the change
	NextRetryAt  *string           `json:"nextRetryAt"`
	CreatedAt    string            `json:"createdAt"`
}

func viewTransition(t taskstate.Transition) transitionView {
	v := transitionView{
		ID: formatID(t.ID), ToStatus: t.To, Reason: t.Reason, AttemptCount: t.AttemptCount, CrashCount: t.CrashCount,
		Fence: t.Fence, Actor: t.Actor, Message: t.Message, ErrorCode: optional(t.ErrorCode),
		NextRetryAt: optionalTime(t.NextRetryAt), CreatedAt: formatTime(t.CreatedAt),
	}
	if t.From != taskstate.StatusNone {
		v.FromStatus = &t.From
	}
	return v
}

// explainView is a task in words and JSON.
type explainView struct {
	Task        taskView         `json:"task"`
	Text        string           `json:"text"`
	Holder      *string          `json:"holder"`
	HeldUntil   *string          `json:"heldUntil"`
	Delivery    *string          `json:"delivery"`
	Next        *string          `json:"next"`
	NextAt      *string          `json:"nextAt"`
	Now         string           `json:"now"` // the database's clock, which judges the times above
	LastChanges []transitionView `json:"lastChanges"`
	Event       *carrierView     `json:"event"` // of the outbox, while it carries the delivery of a QUEUED task
}

// carrierView is the event that carries a delivery.
type carrierView struct {
	ID           string        `json:"id"`
	Status       outbox.Status `json:"status"`
	Cause        outbox.Cause  `json:"cause"`
	AttemptCount int           `json:"attemptCount"`
	NextRetryAt  *string       `json:"nextRetryAt"`
	LastError    *string       `json:"lastError"`
	CreatedAt    string        `json:"createdAt"`
	SentAt       *string       `json:"sentAt"`
}

func viewCarrier(e *outbox.Event) *carrierView {
	if e == nil {
		return nil
	}
	return &carrierView{
		ID: e.ID, Status: e.Status, Cause: e.Cause, AttemptCount: e.AttemptCount, NextRetryAt: optionalTime(e.NextRetryAt),
		LastError: optional(e.LastError), CreatedAt: formatTime(e.CreatedAt), SentAt: optionalTime(e.SentAt),
	}
}

func viewExplanation(e ingest.Explanation) explainView {
	return explainView{
		Event: viewCarrier(e.Event),
		Task:  viewTask(e.Task), Text: e.Words, Holder: optional(e.Holder), HeldUntil: optionalTime(e.HeldUntil),
		Delivery: optional(e.Delivery), Next: optional(e.Next), NextAt: optionalTime(e.NextAt), Now: formatTime(e.Now),
		LastChanges: views(e.LastChanges, viewTransition),
	}
}

// inspectView is a task as an operator sees it: the user's view and what the machinery keeps.
type inspectView struct {
	taskView
	UserID         string             `json:"userId"`
	WorkflowID     *string            `json:"workflowId"`
	ChatID         *string            `json:"chatId"`
	FilePath       *string            `json:"filePath"`
	ThrottleCount  int                `json:"throttleCount"`
	Fence          int64              `json:"fence"`
	LeaseOwner     *string            `json:"leaseOwner"`
	LeaseExpiresAt *string            `json:"leaseExpiresAt"`
	WakeAt         *string            `json:"wakeAt"`
	EnqueuedAt     *string            `json:"promisedAt"`
	EnqueueCount   int                `json:"promiseCount"`
	DLQState       taskstate.DLQState `json:"dlqState"`
	Delivery       *string            `json:"delivery"`
	IdempotencyKey *string            `json:"idempotencyKey"`
	TraceParent    *string            `json:"traceParent"`
	RequestID      *string            `json:"requestId"` // of the request that made the task
}

func viewInspection(t taskstate.Task) inspectView {
	return inspectView{
		taskView: viewTask(t), UserID: t.UserID, WorkflowID: optional(t.WorkflowID), ChatID: optional(t.ChatID), FilePath: optional(t.FilePath),
		ThrottleCount: t.ThrottleCount, Fence: t.Fence, LeaseOwner: optional(t.LeaseOwner), LeaseExpiresAt: optionalTime(t.LeaseExpiresAt),
		WakeAt: optionalTime(t.WakeAt), EnqueuedAt: optionalTime(t.EnqueuedAt), EnqueueCount: t.EnqueueCount, DLQState: t.DLQ,
		Delivery: optional(t.Delivery), IdempotencyKey: optional(t.IdempotencyKey), TraceParent: optional(t.TraceParent), RequestID: optional(t.RequestID),
	}
}

// suspendedView is a suspended task with the reason.
type suspendedView struct {
	inspectView
	Reason string `json:"reason"`
}

// stepView is what contract §4 returns for a resume (queued) and for a task that an operator removes (deleted).
type stepView struct {
	Status string `json:"status"`
	TaskID string `json:"taskId"`
}

// statsView is contract §4's counts.
type statsView struct {
	Counts          map[taskstate.Status]int64 `json:"counts"`
	StreamLength    int64                      `json:"streamLength"`
	RetryLength     int64                      `json:"retryLength"`
	SuspendedLength int64                      `json:"suspendedLength"`
	Recent          map[taskstate.Status]int64 `json:"recent"` // changes to each status in the last hour
}

func viewStats(s ingest.Stats) statsView {
	return statsView{
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

// optional is null for "".
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// optionalTime is null for the zero time and for the fixed date that stands for "never" in the tables.
func optionalTime(t time.Time) *string {
	if t.IsZero() || t.Year() >= 9999 {
		return nil
	}
	text := formatTime(t)
	return &text
}

// views renders every row.
func views[R, V any](rows []R, view func(R) V) []V {
	out := make([]V, len(rows))
	for i, r := range rows {
		out[i] = view(r)
	}
	return out
}
