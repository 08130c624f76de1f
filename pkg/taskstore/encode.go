package taskstore

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// A time column of a change travels as microseconds from now, null for "keep" and neverMicros for "none";
	// the statements know the number.
	neverMicros = int64(9_000_000_000_000_000)
	// farMicros bounds what is added to now, so that no dialect leaves its calendar: 100 years.
	farMicros = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
)

// changeRow is one change as the statement Update reads it.
type changeRow struct {
	ID         string  `json:"id"`
	From       string  `json:"from"`
	Fence      int64   `json:"fence"`
	Owner      string  `json:"owner"`
	To         string  `json:"to"`
	NewFence   int64   `json:"new_fence"`
	Attempts   int     `json:"attempts"`
	Crashes    int     `json:"crashes"`
	Throttles  int     `json:"throttles"`
	Retry      *int64  `json:"retry"`
	Lease      *int64  `json:"lease"`
	Wake       *int64  `json:"wake"`
	Enqueue    *int64  `json:"promise"`
	LeaseOwner string  `json:"lease_owner"`
	Enqueues   int     `json:"promises"`
	DLQ        string  `json:"dlq"`
	Delivery   string  `json:"delivery"`
	Trace      *string `json:"attempt_traceparent"` // null: it stays
	Stage      string  `json:"stage"`
	Percent    int     `json:"percent"`
	Processed  int     `json:"processed"`
	Total      int     `json:"total"`
	Texts      int     `json:"texts"` // 1: the four below are written; 0: they stay
	LastError  *string `json:"last_error"`
	Message    *string `json:"error_message"`
	Code       *string `json:"error_code"`
	Result     *string `json:"result"`

	before *taskstate.Task // the row as it was locked
}

// logRow is one change as the statement Log reads it.
type logRow struct {
	ID      string  `json:"id"`
	From    *string `json:"from"`
	Reason  string  `json:"reason"`
	Actor   string  `json:"actor"`
	Message string  `json:"message"`
}

// newRow is one task as the statement Insert reads it.
type newRow struct {
	ID          string  `json:"id"`
	User        string  `json:"user"`
	Document    *string `json:"document"`
	Base        *string `json:"base"`
	File        *string `json:"file"`
	Workflow    string  `json:"workflow"`
	Type        string  `json:"type"`
	Channel     string  `json:"channel"`
	Chat        string  `json:"chat"`
	Payload     *string `json:"payload"`
	TraceParent string  `json:"traceparent"`
	Request     string  `json:"request"`
	Key         *string `json:"key"`
	Hash        string  `json:"hash"`
	Max         int     `json:"max"`
}

// beatRow is one beat as the statements Heartbeat and HeartbeatHeld read it.
type beatRow struct {
	ID        string  `json:"id"`
	Status    string  `json:"status"`
	Fence     int64   `json:"fence"`
	Epoch     string  `json:"timeline"` // text: not every JSON reader keeps 63 bits
	Owner     string  `json:"owner"`
	Renew     int     `json:"renew"`
	Lease     int64   `json:"lease"` // microseconds
	Stage     *string `json:"stage"` // null: progress stays
	Percent   *int    `json:"percent"`
	Processed *int    `json:"processed"`
	Total     *int    `json:"total"`
}

// afterRow is one task of TransitionsOf.
type afterRow struct {
	ID    string `json:"id"`
	After int64  `json:"after"`
}

// rowOf renders a change of the row before it.
func rowOf(before *taskstate.Task, c *taskstate.Change) changeRow {
	r := changeRow{
		ID: c.TaskID, From: string(c.From), Fence: c.Fence, Owner: before.LeaseOwner,
		To: string(c.To), NewFence: c.NewFence, Attempts: c.AttemptCount, Crashes: c.CrashCount, Throttles: c.ThrottleCount,
		Retry: micros(c.NextRetry), Lease: micros(c.Lease), Wake: micros(c.Wake), Enqueue: micros(c.Enqueue),
		LeaseOwner: c.LeaseOwner, Enqueues: c.EnqueueCount, DLQ: string(c.DLQ), Delivery: c.Delivery,
		Stage: string(c.Progress.Stage), Percent: c.Progress.Percent,
		Processed: c.Progress.Processed, Total: c.Progress.Total,
		before: before,
	}
	if c.AttemptTrace != before.AttemptTrace { // only a claim of a traced task writes it
		r.Trace = &c.AttemptTrace
	}
	// Long texts travel only when they change.
	if c.LastError != before.LastError || c.ErrorMessage != before.ErrorMessage ||
		c.ErrorCode != before.ErrorCode || !bytes.Equal(c.Result, before.Result) {
		r.Texts = 1
		r.LastError, r.Message, r.Code = optional(c.LastError), optional(c.ErrorMessage), optional(c.ErrorCode)
		r.Result = optional(string(c.Result))
	}
	return r
}

// cleaned is c with texts that every dialect can keep: valid UTF-8 without NUL, of bounded length.
func cleaned(c taskstate.Change) *taskstate.Change {
	c.LastError = taskstate.Shorten(clean(c.LastError))
	c.ErrorMessage = taskstate.Shorten(clean(c.ErrorMessage))
	c.Message = taskstate.Shorten(clean(c.Message))
	c.ErrorCode = clean(c.ErrorCode)
	c.Actor.Name = clean(c.Actor.Name)
	if c.Progress.Stage == "" {
		c.Progress.Stage = taskstate.StageNone
	}
	if c.DLQ == "" {
		c.DLQ = taskstate.DLQNone
	}
	return &c
}

// clean makes text of any origin valid UTF-8 without NUL, which Postgres cannot keep.
func clean(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// micros renders a delay.
func micros(d taskstate.Delay) *int64 {
	var n int64
	switch d.Kind {
	case taskstate.DelayKeep:
		return nil
	case taskstate.DelayNever:
		n = neverMicros
	case taskstate.DelayIn:
		n = boundedMicros(d.In)
	}
	return &n
}

// boundedMicros is d in whole microseconds, at most farMicros in either direction.
func boundedMicros(d time.Duration) int64 {
	return max(-farMicros, min(d.Microseconds(), farMicros))
}

// optional is nil for an empty text.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// at is the time that a delay gives when it is written at now; before is what the column said.
func at(d taskstate.Delay, now, before time.Time) time.Time {
	switch d.Kind {
	case taskstate.DelayNever:
		return time.Time{}
	case taskstate.DelayIn:
		return now.Add(time.Duration(boundedMicros(d.In)) * time.Microsecond)
	case taskstate.DelayKeep:
	}
	return before
}

// apply makes t the row once c was written at the instant now, exactly as the statement Update computes it.
func apply(t *taskstate.Task, c *taskstate.Change, now time.Time) {
	t.Status, t.Fence = c.To, c.NewFence
	t.AttemptCount, t.CrashCount, t.ThrottleCount = c.AttemptCount, c.CrashCount, c.ThrottleCount
	t.NextRetryAt = at(c.NextRetry, now, t.NextRetryAt)
	t.LeaseExpiresAt = at(c.Lease, now, t.LeaseExpiresAt)
	t.WakeAt = at(c.Wake, now, t.WakeAt)
	t.EnqueuedAt = at(c.Enqueue, now, t.EnqueuedAt)
	t.LeaseOwner, t.EnqueueCount = c.LeaseOwner, c.EnqueueCount
	t.DLQ, t.Delivery, t.Progress = c.DLQ, c.Delivery, c.Progress
	t.AttemptTrace = c.AttemptTrace
	t.LastError, t.ErrorMessage, t.ErrorCode = c.LastError, c.ErrorMessage, c.ErrorCode
	t.Result = nil
	if len(c.Result) > 0 {
		t.Result = c.Result
	}
	t.UpdatedAt = now
}

// decimal renders an epoch.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }
