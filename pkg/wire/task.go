package wire

import (
	"strconv"

	"github.com/millweir/millweir/pkg/taskstate"
)

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
	KnowledgeBase     NullText         `json:"knowledgeBase"`          // its name; null: the task has no document, or is of before 1.0
	FileName          NullText         `json:"fileName" payload:"yes"` // of its upload; null: the task has no document
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
	ErrorMessage      NullText         `json:"errorMessage" payload:"yes"`
	LastError         NullText         `json:"lastError" payload:"yes"`
	Waiting           *Waiting         `json:"waiting"`
	Warnings          []string         `json:"warnings,omitempty" payload:"yes"` // what the document's text is without: pages, attachments, hidden sheets
	CreatedAt         Time             `json:"createdAt"`
	UpdatedAt         Time             `json:"updatedAt"`
}

// InspectedTask is a task as an operator sees it: the user's view and what the machinery keeps.
type InspectedTask struct {
	Task
	UserID         string             `json:"userId"`
	WorkflowID     NullText           `json:"workflowId"`
	ChatID         NullText           `json:"chatId" payload:"yes"`
	FilePath       NullText           `json:"filePath" payload:"yes"`
	ThrottleCount  int                `json:"throttleCount"`
	Fence          int64              `json:"fence"`
	LeaseOwner     NullText           `json:"leaseOwner"`
	LeaseExpiresAt NullTime           `json:"leaseExpiresAt"`
	WakeAt         NullTime           `json:"wakeAt"`
	EnqueuedAt     NullTime           `json:"promisedAt"`
	EnqueueCount   int                `json:"promiseCount"`
	DLQState       taskstate.DLQState `json:"dlqState"`
	Delivery       NullText           `json:"delivery"`
	IdempotencyKey NullText           `json:"idempotencyKey" payload:"yes"`
	TraceParent    NullText           `json:"traceParent"`
	RequestID      NullText           `json:"requestId"` // of the request that made the task
}

// MirrorFailed is the reason of a task that waits or runs and of which RabbitMQ has no copy.
const MirrorFailed = "mirror_failed"

// SuspendedTask is a task that a person has to look at, with the reason: it is SUSPENDED, or has no copy in RabbitMQ.
type SuspendedTask struct {
	InspectedTask
	Reason      string   `json:"reason" payload:"yes"`
	MirrorError NullText `json:"mirrorError" payload:"yes"` // of MirrorFailed: why there is no copy
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
	Message      string           `json:"message" payload:"yes"`
	ErrorCode    NullText         `json:"errorCode"` // the task's after the change
	NextRetryAt  NullTime         `json:"nextRetryAt"`
	CreatedAt    Time             `json:"createdAt"`
}

// TransitionOf renders a row of a task's log.
func TransitionOf(t taskstate.Transition) Transition {
	return Transition{
		ID: strconv.FormatInt(t.ID, 10), FromStatus: NullText(t.From), ToStatus: t.To, Reason: t.Reason, AttemptCount: t.AttemptCount,
		CrashCount: t.CrashCount, Fence: t.Fence, Actor: t.Actor, Message: t.Message, ErrorCode: NullText(t.ErrorCode),
		NextRetryAt: MaybeAt(t.NextRetryAt), CreatedAt: At(t.CreatedAt),
	}
}

// Explanation is a task in words and JSON.
type Explanation struct {
	Task        Task         `json:"task"`
	Text        string       `json:"text"`
	Sentences   []Said       `json:"sentences"` // those of text, but the next step
	Holder      NullText     `json:"holder"`
	HeldUntil   NullTime     `json:"heldUntil"`
	Delivery    NullText     `json:"delivery"`
	Place       *Place       `json:"place"` // where the queue has the delivery; null: nowhere, or nobody can say
	Next        NullText     `json:"next"`
	NextSaid    Said         `json:"nextSaid"` // next, as a sentence
	NextAt      NullTime     `json:"nextAt"`
	Now         Time         `json:"now"` // the database's clock, which judges the times above
	LastChanges []Transition `json:"lastChanges"`
	Event       *Carrier     `json:"event"` // of the outbox, while it carries the delivery of a QUEUED task
	Attempts    []Attempt    `json:"attempts"`
	TraceID     NullText     `json:"traceId"`  // of the request that made the task, and of its attempts
	TraceURL    NullText     `json:"traceUrl"` // by OTEL_UI_URL
	SQL         []string     `json:"sql"`      // statements that show the same
}

// Said is a sentence: a template, in which each %s stands for one of args in turn and %% for a percent sign.
type Said struct {
	Template string   `json:"template"`
	Args     []string `json:"args"`
}

// Place is where a queue has a delivery.
type Place struct {
	Stream      string   `json:"stream"`
	Consumer    NullText `json:"consumer"`    // who was given it and has not acknowledged it
	IdleSeconds *float64 `json:"idleSeconds"` // since it was given; null: nobody was
	Deliveries  int64    `json:"deliveries"`  // how often it was given
}

// Attempt is one run of a task.
type Attempt struct {
	StartedAt Time     `json:"startedAt"`
	EndedAt   NullTime `json:"endedAt"` // null: it runs
	Actor     string   `json:"actor"`
	Reason    NullText `json:"reason"` // how it ended
	ErrorCode NullText `json:"errorCode"`
	Message   NullText `json:"message" payload:"yes"`
	Delivery  NullText `json:"delivery"` // null: the table brought it
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

// FailureGroup is what failures have in common: their cause.
type FailureGroup struct {
	GroupID   string            `json:"groupId"`
	Pattern   string            `json:"pattern" payload:"yes"` // the error without what differs from one failure to the next
	ErrorCode NullText          `json:"errorCode"`
	Permanent bool              `json:"permanent"` // no retry cures it
	Failures  int64             `json:"failures"`  // ever
	Tasks     int64             `json:"tasks"`     // that fail with it now
	FirstAt   Time              `json:"firstAt"`
	LastAt    Time              `json:"lastAt"`
	Stages    []taskstate.Stage `json:"stages"`
	Bases     []string          `json:"bases"`                // ids; tasks without a document have none
	Error     string            `json:"error" payload:"yes"`  // one of them, as it was
	Remedy    NullText          `json:"remedy" payload:"yes"` // what its user was told
	TaskID    string            `json:"taskId"`               // its task
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

// History is what ended in each part of the last hour or day.
type History struct {
	StepSeconds int      `json:"stepSeconds"` // the length of a part
	Buckets     []Bucket `json:"buckets"`     // the oldest first; the last one is not over yet
}

// Bucket is what ended in one part.
type Bucket struct {
	At          Time     `json:"at"` // its beginning
	Succeeded   int64    `json:"succeeded"`
	Dead        int64    `json:"dead"`
	AtLeast     bool     `json:"atLeast"`     // there were more changes than are counted
	SecondsHalf *float64 `json:"secondsHalf"` // what half of the sampled tasks took, from upload to SUCCEEDED; null: none ended
	SecondsMost *float64 `json:"secondsMost"` // what 95 % of them took
	Sampled     int      `json:"sampled"`     // the last ones that succeeded in it, at most 100
}

// TaskCounts counts tasks by what they can be listed by.
type TaskCounts struct {
	Counts map[taskstate.Status]int64 `json:"counts"`
	Stages map[taskstate.Stage]int64  `json:"stages"` // RUNNING tasks by stage
	Bases  []BaseTasks                `json:"bases"`  // the newest ones
}

// BaseTasks are the tasks of a knowledge base.
type BaseTasks struct {
	KnowledgeBaseID string                     `json:"knowledgeBaseId"`
	Name            string                     `json:"name"`
	Counts          map[taskstate.Status]int64 `json:"counts"`
}

// Minute has the changes to each status in a minute.
type Minute struct {
	At      Time                       `json:"at"` // its beginning
	Changes map[taskstate.Status]int64 `json:"changes"`
}

// Stats counts tasks and what waits in the queue.
type Stats struct {
	Counts          map[taskstate.Status]int64 `json:"counts"`
	StreamLength    int64                      `json:"streamLength"`
	RetryLength     int64                      `json:"retryLength"`
	SuspendedLength int64                      `json:"suspendedLength"`
	Recent          map[taskstate.Status]int64 `json:"recent"`  // changes to each status in the last hour
	Minutes         []Minute                   `json:"minutes"` // of that hour, those with changes, the oldest first
	Pace
}

// Pace is how tasks come on.
type Pace struct {
	OldestWaitingSeconds *float64                  `json:"oldestWaitingSeconds"` // null: nothing waits
	Stages               map[taskstate.Stage]int64 `json:"stages"`               // RUNNING tasks by stage
	PerMinute            float64                   `json:"perMinute"`            // tasks that ended, within the last ten minutes
	SecondsLeft          *float64                  `json:"secondsLeft"`          // of what waits, at that pace; null: nothing waits, or nobody can say
	SecondsHalf          *float64                  `json:"secondsHalf"`          // what half of the last tasks took, from upload to SUCCEEDED; null: none
	SecondsMost          *float64                  `json:"secondsMost"`          // what 95 % of them took
}
