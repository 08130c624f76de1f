package wire

import "github.com/millweir/millweir/pkg/taskstate"

// Waiting says what a task waits for; until null: nobody knows.
type Waiting struct {
	Reason string   `json:"reason"`
	Until  NullTime `json:"until"`
}

// The reasons for which a task waits.
const (
	WaitQueue    = "QUEUED"        // for a free worker
	WaitAlone    = "RUNS_ALONE"    // for a process that empties itself to run it alone (design D6)
	WaitBackoff  = "RETRY_BACKOFF" // for nextRetryAt after a failure
	WaitThrottle = "THROTTLED"     // for nextRetryAt, as a service asked
	WaitPerson   = "SUSPENDED"     // for an operator
)

// Task is a task for its user.
type Task struct {
	TaskID            string           `json:"taskId"`
	DocumentID        NullText         `json:"documentId"`
	KnowledgeBaseID   NullText         `json:"knowledgeBaseId"`
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
	NextRetryAt       NullTime         `json:"nextRetryAt"`
	ErrorCode         NullText         `json:"errorCode"`
	ErrorMessage      NullText         `json:"errorMessage"`
	LastError         NullText         `json:"lastError"`
	Waiting           *Waiting         `json:"waiting"`
	Warnings          []string         `json:"warnings,omitempty"` // what the document's text is without: pages, attachments, hidden sheets
	CreatedAt         Time             `json:"createdAt"`
	UpdatedAt         Time             `json:"updatedAt"`
}

// InspectedTask is a task as an operator sees it: the user's view and what the machinery keeps.
type InspectedTask struct {
	Task
	UserID         string             `json:"userId"`
	WorkflowID     NullText           `json:"workflowId"`
	ChatID         NullText           `json:"chatId"`
	FilePath       NullText           `json:"filePath"`
	ThrottleCount  int                `json:"throttleCount"`
	Fence          int64              `json:"fence"`
	LeaseOwner     NullText           `json:"leaseOwner"`
	LeaseExpiresAt NullTime           `json:"leaseExpiresAt"`
	WakeAt         NullTime           `json:"wakeAt"`
	EnqueuedAt     NullTime           `json:"promisedAt"`
	EnqueueCount   int                `json:"promiseCount"`
	DLQState       taskstate.DLQState `json:"dlqState"`
	Delivery       NullText           `json:"delivery"`
	IdempotencyKey NullText           `json:"idempotencyKey"`
	TraceParent    NullText           `json:"traceParent"`
	RequestID      NullText           `json:"requestId"` // of the request that made the task
}

// MirrorFailed is the reason of a task that waits or runs and of which RabbitMQ has no copy.
const MirrorFailed = "mirror_failed"

// SuspendedTask is a task that a person has to look at, with the reason: it is SUSPENDED, or has no copy in RabbitMQ.
type SuspendedTask struct {
	InspectedTask
	Reason      string   `json:"reason"`
	MirrorError NullText `json:"mirrorError"` // of MirrorFailed: why there is no copy
}

// Transition is one row of a task's log.
type Transition struct {
	ID           string           `json:"id"`
	FromStatus   NullText         `json:"fromStatus"` // null: the task was made
	ToStatus     taskstate.Status `json:"toStatus"`
	Reason       taskstate.Reason `json:"reason"`
	AttemptCount int              `json:"attemptCount"`
	CrashCount   int              `json:"crashCount"`
	Fence        int64            `json:"fence"`
	Actor        string           `json:"actor"`
	Message      string           `json:"message"`
	ErrorCode    NullText         `json:"errorCode"` // the task's after the change
	NextRetryAt  NullTime         `json:"nextRetryAt"`
	CreatedAt    Time             `json:"createdAt"`
}

// Explanation is a task in words and JSON.
type Explanation struct {
	Task        Task         `json:"task"`
	Text        string       `json:"text"`
	Holder      NullText     `json:"holder"`
	HeldUntil   NullTime     `json:"heldUntil"`
	Delivery    NullText     `json:"delivery"`
	Next        NullText     `json:"next"`
	NextAt      NullTime     `json:"nextAt"`
	Now         Time         `json:"now"` // the database's clock, which judges the times above
	LastChanges []Transition `json:"lastChanges"`
	Event       *Carrier     `json:"event"` // of the outbox, while it carries the delivery of a QUEUED task
}

// Carrier is the event of the outbox that carries a delivery.
type Carrier struct {
	ID           string   `json:"id"`
	Status       string   `json:"status"`
	Cause        string   `json:"cause"`
	AttemptCount int      `json:"attemptCount"`
	NextRetryAt  NullTime `json:"nextRetryAt"`
	LastError    NullText `json:"lastError"`
	CreatedAt    Time     `json:"createdAt"`
	SentAt       NullTime `json:"sentAt"`
}

// TaskStep is the result of a resume (queued) and of a task that an operator removes (deleted).
type TaskStep struct {
	Status string `json:"status"`
	TaskID string `json:"taskId"`
}

// Reason are an operator's words for a step.
type Reason struct {
	Reason string `json:"reason"`
}

// Stats counts tasks and what waits in the queue.
type Stats struct {
	Counts          map[taskstate.Status]int64 `json:"counts"`
	StreamLength    int64                      `json:"streamLength"`
	RetryLength     int64                      `json:"retryLength"`
	SuspendedLength int64                      `json:"suspendedLength"`
	Recent          map[taskstate.Status]int64 `json:"recent"` // changes to each status in the last hour
}
