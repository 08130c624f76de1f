package wire

import (
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// DeadLetter is a dead letter of the ingest queue with what its row says now.
type DeadLetter struct {
	ID             string          `json:"id"`
	Source         string          `json:"source"`
	TaskID         NullText        `json:"taskId"` // null: a delivery that could not be read
	Fence          *int64          `json:"fence"`
	AttemptCount   int             `json:"attemptCount"`
	LastError      string          `json:"lastError"`
	FailedAt       Time            `json:"failedAt"`
	SourceStream   NullText        `json:"sourceStream"`
	SourceGroup    NullText        `json:"sourceGroup"`
	SourceRecordID NullText        `json:"sourceRecordId"`
	Raw            map[string]Blob `json:"raw"`  // null: it could be read
	Task           *DeadTask       `json:"task"` // null: there is no such row
	Replayable     bool            `json:"replayable"`
	Reason         NullText        `json:"reason"` // why not
	Why            NullText        `json:"why"`    // in words
}

// DeadTask is a dead letter's row as it is now.
type DeadTask struct {
	Status taskstate.Status `json:"status"`
	Fence  int64            `json:"fence"`
}

// TopicDeadLetter is a dead letter of a topic: a message with its payload.
type TopicDeadLetter struct {
	ID         string            `json:"id"`
	Topic      string            `json:"topic"`
	Partition  int               `json:"partition"`
	OriginalID string            `json:"originalId"`
	Group      string            `json:"group"`
	Key        *Blob             `json:"key"`
	Attempts   int               `json:"attempts"`
	MaxRetries int               `json:"maxRetries"`
	FailedAt   NullTime          `json:"failedAt"`
	Error      string            `json:"error"`
	Headers    map[string]string `json:"headers"`
	Payload    Blob              `json:"payload"`
	Raw        map[string]Blob   `json:"raw"`
	Replayable bool              `json:"replayable"`
	ReplayedAs NullText          `json:"replayedAs"` // the id of the entry that a replay added
}

// DeadLetterStats counts what waits for an operator.
type DeadLetterStats struct {
	Source  string `json:"source"`
	Entries int64  `json:"entries"`
	Dead    int64  `json:"dead"`
}

// Bulk is what requests to replay or drop many dead letters have in common, for the ingest queue and for topics.
type Bulk struct {
	Error        string     `json:"error,omitempty"`
	FailedAfter  *time.Time `json:"failedAfter,omitempty"`
	FailedBefore *time.Time `json:"failedBefore,omitempty"`
	Reason       string     `json:"reason,omitempty"` // in the operator's own words, for the audit log
	All          bool       `json:"all"`
	Cursor       string     `json:"cursor,omitempty"`
	Limit        int        `json:"limit,omitempty"`
	PerSecond    int        `json:"perSecond,omitempty"`
	DryRun       bool       `json:"dryRun"`
}

// DeadLetterBulk selects dead letters of the ingest queue.
type DeadLetterBulk struct {
	Source string `json:"source,omitempty"`
	Task   string `json:"task,omitempty"`
	Bulk
}

// TopicDeadLetterBulk selects dead letters of a topic.
type TopicDeadLetterBulk struct {
	Group      string `json:"group,omitempty"`
	Partition  *int   `json:"partition,omitempty"`
	Key        string `json:"key,omitempty"`
	Unreplayed bool   `json:"unreplayed,omitempty"`
	Bulk
}

// BulkResult says what one request did; with nextCursor there is more.
type BulkResult struct {
	DryRun     bool           `json:"dryRun"`
	Replayed   *int           `json:"replayed,omitempty"`
	Dropped    *int           `json:"dropped,omitempty"`
	Skipped    map[string]int `json:"skipped"`
	Failed     int            `json:"failed"`
	Error      NullText       `json:"error"` // the code of the first failure
	NextCursor NullText       `json:"nextCursor"`
	HasMore    bool           `json:"hasMore"`
}
