package taskstate

import (
	"encoding/json"
	"time"
)

// DLQState says what a DEAD task owes to the dead letter queue (design D11).
type DLQState string

// The debts.
const (
	DLQNone    DLQState = "none"    // nothing owed: not DEAD, the DLQ is off, or a replay cancelled the debt
	DLQOwed    DLQState = "owed"    // an entry has to be written
	DLQWritten DLQState = "written" // an entry was written
)

// Stage names where the work on a task is.
type Stage string

// The stages that every type of task has. A type may have more of its own between them.
const (
	StageNone Stage = "none"
	StageRun  Stage = "run"
	StageDone Stage = "done"
)

// Token is a claim's authority: every write of its holder is compared with it (design D2).
type Token struct {
	Epoch int64 // changed only by `timeline renew` after a restore
	Fence int64 // grows by one with every claim of the task
}

// Progress is how far the work on a task is.
type Progress struct {
	Stage     Stage
	Percent   int // 0–99 while it runs, 100 when done
	Processed int // segments
	Total     int // segments; 0: not known yet
}

// Task is a row of ingest_task.
// Times are UTC with microseconds; the zero time stands for "none".
type Task struct {
	ID             string // UUIDv7 text
	UserID         string
	DocumentID     string // empty: a task without a document
	KnowledgeBase  string // the base's id; empty without a document
	FilePath       string
	WorkflowID     string
	Type           string // "document" or a workflow's kind
	Channel        string // http, telegram, cli, …
	ChatID         string
	Payload        json.RawMessage // JSON, at most 256 KiB; may be nil
	Result         json.RawMessage // may be nil
	TraceParent    string          // W3C traceparent of the accepting request: the parent of every attempt
	RequestID      string          // X-Request-Id of the accepting request; empty: not accepted by one
	IdempotencyKey string          // empty: none; unique with UserID
	RequestHash    string          // sha256 (hex) of what was sent with the key; empty without one

	Status        Status
	Progress      Progress
	AttemptCount  int // failed runs
	MaxAttempts   int
	CrashCount    int // takeovers since the last replay
	ThrottleCount int // throttles in a row
	NextRetryAt   time.Time
	LastError     string // real cause, at most 2,000 characters
	ErrorMessage  string // the same for the user
	ErrorCode     string // UPPER_SNAKE; empty: none

	Fence        int64
	LeaseOwner   string    // holder or reserver; of a SUCCEEDED task its last holder; empty: none
	WakeAt       time.Time // when somebody must look at this row (design D3): of a claim, the end of its process's lease
	EnqueuedAt   time.Time
	EnqueueCount int
	DLQ          DLQState
	Delivery     string // which message brought the present or last claim; empty: none
	AttemptTrace string // W3C traceparent of the last traced attempt: the next one links to it; empty: none

	CreatedAt time.Time
	UpdatedAt time.Time
}

// LeaseExpiresAt is until when a claim or a reservation holds the task; zero: none does. Somebody must look at it then.
func (t Task) LeaseExpiresAt() time.Time {
	switch t.Status {
	case StatusRunning:
		return t.WakeAt
	case StatusQueued, StatusRetrying:
		if t.LeaseOwner != "" {
			return t.WakeAt
		}
	case StatusNone, StatusSucceeded, StatusDead, StatusSuspended, StatusCancelled:
	}
	return time.Time{}
}

// Reserved reports whether a process waits to run this task alone (design D6).
func (t Task) Reserved(now time.Time) bool {
	return t.LeaseExpiresAt().After(now) && t.Status != StatusRunning
}

// Transition is a row of ingest_task_transition; the log alone can be checked with them.
type Transition struct {
	ID             int64 // number of the call that wrote it: it grows along a task's log, and is the same for all tasks of the call
	TaskID         string
	From, To       Status
	Reason         Reason
	AttemptCount   int
	CrashCount     int
	Fence          int64
	Epoch          int64
	Actor          string // kind:name, see Actor
	Message        string
	LeaseExpiresAt time.Time
	NextRetryAt    time.Time
	Delivery       string // of a claim: the message that brought it; a log has each once
	ErrorCode      string // of the row after the change; empty: none, or written before migration 008
	CreatedAt      time.Time
}

// ActorKind says what sort of party changed a task.
type ActorKind string

// The kinds of actor.
const (
	ActorWorker   ActorKind = "worker"
	ActorUser     ActorKind = "user"
	ActorOperator ActorKind = "operator"
	ActorSystem   ActorKind = "system" // a sweep, or the document's own life
)

// Actor is who changed a task; its text is kind:name.
type Actor struct {
	Kind ActorKind
	Name string
}

// String renders the actor as the audit shows it.
func (a Actor) String() string { return string(a.Kind) + ":" + a.Name }
