package dlq

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Errors of the service besides taskstate's and ingest's.
var (
	ErrBadCursor  = errors.New("bad cursor")                                                             // 400
	ErrNotFound   = errors.New("dead letter not found")                                                  // 404
	ErrUnreadable = errors.New("the dead letter is a delivery that could not be read: it names no task") // 409; it can only be dropped
	ErrNoEntry    = errors.New("the dead letter is a row with status DEAD: there is no entry to drop")   // 409
	ErrNoStream   = errors.New("there is no dead letter stream here")                                    // 404; asked for by name
)

// Source says what a dead letter is.
type Source string

// The sources.
const (
	SourceRedis Source = "redis" // an entry of the dead letter stream
	SourceKafka Source = "kafka" // a row with status DEAD (the DLQ topic holds copies), or a record there that could not be read
	SourceTable Source = "table" // a row with status DEAD, where the transport is Redis
)

// Sources lists them all.
func Sources() []Source { return []Source{SourceRedis, SourceKafka, SourceTable} }

// Reason says why a dead letter cannot be replayed; the empty one: it can.
type Reason string

// The reasons.
const (
	ReasonUnreadable Reason = "UNREADABLE"          // a delivery that could not be read names no task
	ReasonGone       Reason = "TASK_NOT_FOUND"      // there is no such row
	ReasonState      Reason = "TASK_NOT_REPLAYABLE" // the row is not DEAD, or died again since
	ReasonSuperseded Reason = "SUPERSEDED"          // a later upload is visible
	ReasonDeleted    Reason = "DOCUMENT_DELETED"    // the document or its file is gone
)

// DeadLetter is a dead letter with what its row says now.
type DeadLetter struct {
	ingestq.StoredDeadLetter // ID is an entry's, or RowID of a row
	Source                   Source

	Status   taskstate.Status // of the row; StatusNone: there is none
	RowFence int64
	Reason   Reason
	Why      string // Reason in words; empty: it can be replayed

	at Cursor // its place in the list
}

// Cursor is a dead letter's place in a list: the id of the entry or of the task, and the time of what is listed by time.
type Cursor = ingestq.DeadLetterPlace

// RowID is the id of a task's death as a dead letter; the audit log names dead letters by it.
func RowID(task string, fence int64) string { return task + "-" + strconv.FormatInt(fence, 10) }

var rowIDForm = regexp.MustCompile(`^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9]{1,18})$`)

// parseRowID reads what RowID made.
func parseRowID(id string) (task string, fence int64, ok bool) {
	m := rowIDForm.FindStringSubmatch(id)
	if m == nil {
		return "", 0, false
	}
	fence, err := strconv.ParseInt(m[2], 10, 64)
	return m[1], fence, err == nil && RowID(m[1], fence) == id
}

// deadLetterOfRow is a DEAD row as a dead letter.
func deadLetterOfRow(t taskstate.Task, source Source) DeadLetter {
	l := DeadLetter{Source: source, at: Cursor{ID: t.ID, At: t.UpdatedAt}}
	l.ID = RowID(t.ID, t.Fence)
	l.DeadLetter = ingestq.DeadLetter{
		TaskID: t.ID, Fence: t.Fence, SourceRecordID: t.Delivery, LastError: t.LastError, AttemptCount: t.AttemptCount, FailedAt: t.UpdatedAt,
	}
	return l
}

// judge says what the row is now, and whether the dead letter can be replayed; refused is why the row cannot be.
func (l *DeadLetter) judge(t taskstate.Task, found bool, refused error) {
	if l.Raw != nil {
		l.Reason, l.Why = ReasonUnreadable, ErrUnreadable.Error()
		return
	}
	if !found {
		l.Reason, l.Why = ReasonGone, "there is no task "+l.TaskID
		return
	}
	l.Status, l.RowFence = t.Status, t.Fence
	err := stateOf(t, l.Fence)
	if err == nil {
		err = refused
	}
	if err != nil {
		l.Reason, l.Why = reasonOf(err), err.Error()
	}
}

// StateError says that a dead letter's task is not DEAD with the dead letter's fence any more; it is a *taskstate.RefusedError.
type StateError struct {
	Status     taskstate.Status
	Fence, Row int64 // the dead letter's, the row's
}

// Error implements error.
func (e *StateError) Error() string {
	if e.Status == taskstate.StatusDead {
		return fmt.Sprintf("the task died again: it is DEAD with fence %d, the dead letter is of fence %d", e.Row, e.Fence)
	}
	return fmt.Sprintf("the task is %s", e.Status)
}

// Unwrap makes it the refusal that the state machine would give.
func (e *StateError) Unwrap() error {
	return &taskstate.RefusedError{Code: taskstate.CodeNotReplayable, Status: e.Status}
}

// stateOf is nil when a dead letter of that fence may be replayed (design D11).
func stateOf(t taskstate.Task, fence int64) error {
	if t.Status == taskstate.StatusDead && t.Fence == fence {
		return nil
	}
	return &StateError{Status: t.Status, Fence: fence, Row: t.Fence}
}

// stale reports whether no row will ever be DEAD with that fence again: it was replayed. A row of a lower fence comes from an
// older backup; its dead letter is kept.
func (e *StateError) stale() bool {
	return e.Row > e.Fence || e.Row == e.Fence && e.Status != taskstate.StatusDead
}

// reasonOf is the word for a refusal; empty for what is none.
func reasonOf(err error) Reason {
	var state *taskstate.RefusedError
	switch {
	case errors.As(err, &state):
		return ReasonState
	case errors.Is(err, ingest.ErrReplaySuperseded):
		return ReasonSuperseded
	case errors.Is(err, ingest.ErrDocumentDeleted):
		return ReasonDeleted
	case errors.Is(err, taskstate.ErrNotFound):
		return ReasonGone
	case errors.Is(err, ErrUnreadable):
		return ReasonUnreadable
	}
	return ""
}

// Query chooses dead letters; zero fields do not limit.
type Query struct {
	Source       Source // empty: the transport's own
	Task         string
	Text         string // in the error, whatever the case
	FailedAfter  time.Time
	FailedBefore time.Time

	droppable bool // no rows
}

// wants reports whether a dead letter is chosen.
func (q Query) wants(l DeadLetter) bool {
	return (q.Task == "" || l.TaskID == q.Task) &&
		(q.Text == "" || strings.Contains(strings.ToLower(l.LastError), strings.ToLower(q.Text))) &&
		(q.FailedAfter.IsZero() || l.FailedAt.After(q.FailedAfter)) &&
		(q.FailedBefore.IsZero() || l.FailedAt.Before(q.FailedBefore))
}
