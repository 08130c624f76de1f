package fsck

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Outcome is what a client knows of a request.
type Outcome string

// The outcomes. A request without a whole answer stays Maybe for ever: it is never taken for failed.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeRefused Outcome = "refused"
	OutcomeMaybe   Outcome = "maybe"
)

// The operations of a client. The first three take a file.
const (
	OpUpload  = "upload"  // BodyHash, Key; with force too
	OpReplace = "replace" // a new version of Document
	OpImport  = "import"  // a task that another source made
	OpDelete  = "delete"
	OpCancel  = "cancel"
	OpRetry   = "retry"
	OpSuspend = "suspend"
	OpResume  = "resume"
	OpSearch  = "search" // Hits
	OpEvent   = "event"  // one server-sent event: Watcher, Task, Transition, Status
	OpRead    = "read"   // anything else that changes nothing
	OpOutage  = "outage" // the database was killed right after Began and answered again at Ended
)

// ClientRecord is one line of a client's log: a request with its answer, or one server-sent event.
// Its times are the client's own clock, Began before the first byte was sent and Ended after the last was read.
type ClientRecord struct {
	Op        string    `json:"op"`
	User      string    `json:"user"`
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
	Outcome   Outcome   `json:"outcome"`
	Status    int       `json:"status,omitempty"` // of HTTP; 0: no answer
	Code      string    `json:"code,omitempty"`   // of a refusal
	Key       string    `json:"key,omitempty"`    // Idempotency-Key as sent; a request with several files has one
	BodyHash  string    `json:"bodyHash,omitempty"`
	Task      string    `json:"task,omitempty"`     // asked for, or answered
	Document  string    `json:"document,omitempty"` // asked for, or answered
	Duplicate bool      `json:"duplicate,omitempty"`
	Replayed  bool      `json:"replayed,omitempty"`
	Hits      []Hit     `json:"hits,omitempty"`

	// Of an event. One Watcher is one client that goes and comes back with Last-Event-ID; its events stand in their order.
	Watcher    string `json:"watcher,omitempty"`
	Transition int64  `json:"transition,omitempty"`
	State      string `json:"state,omitempty"` // the task's status
	Attempt    int    `json:"attempt,omitempty"`
	Crashes    int    `json:"crashes,omitempty"`
}

// Hit is what a search answered.
type Hit struct {
	Document string `json:"document"`
	Version  int64  `json:"version"` // the visible version's number
}

// ReadClientLog gives every record of a log to f, in its order; a last line that was cut off by a crash is dropped.
// Errors: f's; a line that is no record.
func ReadClientLog(r io.Reader, f func(ClientRecord) error) error {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("client log: %w", err)
		}
		var rec ClientRecord
		if err := json.Unmarshal(line, &rec); err != nil {
			return fmt.Errorf("client log: line %d: %w", n, err)
		}
		if err := f(rec); err != nil {
			return err
		}
	}
}
