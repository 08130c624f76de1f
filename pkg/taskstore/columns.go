package taskstore

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// column is one column of ingest_task_state or ingest_task_body: all that statements, scans and changes have to know of it. Whoever adds a column
// writes an entry of columns, a field of taskstate.Task (and of Change, if changes write it) and a migration.
type column struct {
	name string
	kind kind
	role role
	// field is where a task has it: a *string, *int, *int64, *time.Time or *json.RawMessage.
	field func(t *taskstate.Task) any
	// change is where a change has it: a pointer of the field's type, or a *taskstate.Delay for a time; nil: no change writes it.
	change func(c *taskstate.Change) any
}

// kind is a column's type in the databases.
type kind int

// The kinds.
const (
	text         kind = iota // NOT NULL; empty: none
	word                     // such a text that many rows share
	nullable                 // a text whose none is NULL
	sharedOrNull             // such a nullable text that many rows share
	number
	owner           // "process/call" as a number (owners.go)
	digits          // a delivery's name, in 16 bytes on MySQL (below)
	instant         // NOT NULL; its none is the year 9999
	nullableInstant // its none is NULL
)

// role is what else is special about a column.
type role int

// The roles.
const (
	made  role = 1 << iota // of the body: InsertBody writes it from the new task; of others it is known how they begin
	said                   // of the body too: a change writes it seldom. All others are the state's
	guard                  // a change finds its row only while the column says what it said under the lock
)

// body reports whether the column stands in ingest_task_body.
func (c column) body() bool { return c.role&(made|said) != 0 }

type (
	task   = taskstate.Task
	change = taskstate.Change
)

// columns are those of ingest_task_body and ingest_task_state; the id, which is in both, as text.
var columns = []column{
	{"id", text, made, func(t *task) any { return &t.ID }, nil},
	{"user_id", word, made, func(t *task) any { return &t.UserID }, nil},
	{"document_id", nullable, made, func(t *task) any { return &t.DocumentID }, nil},
	{"knowledge_base_id", sharedOrNull, made, func(t *task) any { return &t.KnowledgeBase }, nil},
	{"file_path", nullable, made, func(t *task) any { return &t.FilePath }, nil},
	{"workflow_id", word, made, func(t *task) any { return &t.WorkflowID }, nil},
	{"type", word, made, func(t *task) any { return &t.Type }, nil},
	{"channel", word, made, func(t *task) any { return &t.Channel }, nil},
	{"chat_id", text, made, func(t *task) any { return &t.ChatID }, nil},
	{"payload", nullable, made, func(t *task) any { return &t.Payload }, nil},
	{"traceparent", text, made, func(t *task) any { return &t.TraceParent }, nil},
	{"request_id", text, made, func(t *task) any { return &t.RequestID }, nil},
	{"idempotency_key", nullable, made, func(t *task) any { return &t.IdempotencyKey }, nil},
	{"request_hash", text, made, func(t *task) any { return &t.RequestHash }, nil},
	{"max_attempts", number, made, func(t *task) any { return &t.MaxAttempts }, nil},

	{"status", word, guard, func(t *task) any { return (*string)(&t.Status) }, func(c *change) any { return (*string)(&c.To) }},
	{"fence", number, guard, func(t *task) any { return &t.Fence }, func(c *change) any { return &c.NewFence }},
	{"lease_owner", owner, guard, func(t *task) any { return &t.LeaseOwner }, func(c *change) any { return &c.LeaseOwner }},
	{"attempt_count", number, 0, func(t *task) any { return &t.AttemptCount }, func(c *change) any { return &c.AttemptCount }},
	{"crash_count", number, 0, func(t *task) any { return &t.CrashCount }, func(c *change) any { return &c.CrashCount }},
	{"throttle_count", number, 0, func(t *task) any { return &t.ThrottleCount }, func(c *change) any { return &c.ThrottleCount }},
	{"next_retry_at", nullableInstant, 0, func(t *task) any { return &t.NextRetryAt }, func(c *change) any { return &c.NextRetry }},
	{"wake_at", instant, 0, func(t *task) any { return &t.WakeAt }, func(c *change) any { return &c.Wake }},
	{"promised_at", instant, 0, func(t *task) any { return &t.EnqueuedAt }, func(c *change) any { return &c.Enqueue }},
	{"promise_count", number, 0, func(t *task) any { return &t.EnqueueCount }, func(c *change) any { return &c.EnqueueCount }},
	{"dlq_state", word, 0, func(t *task) any { return (*string)(&t.DLQ) }, func(c *change) any { return (*string)(&c.DLQ) }},
	{"delivery", digits, 0, func(t *task) any { return &t.Delivery }, func(c *change) any { return &c.Delivery }},
	{"attempt_traceparent", text, 0, func(t *task) any { return &t.AttemptTrace }, func(c *change) any { return &c.AttemptTrace }},
	{"stage", word, 0, func(t *task) any { return (*string)(&t.Progress.Stage) }, func(c *change) any { return (*string)(&c.Progress.Stage) }},
	{"progress", number, 0, func(t *task) any { return &t.Progress.Percent }, func(c *change) any { return &c.Progress.Percent }},
	{"processed_segments", number, 0, func(t *task) any { return &t.Progress.Processed }, func(c *change) any { return &c.Progress.Processed }},
	{"total_segments", number, 0, func(t *task) any { return &t.Progress.Total }, func(c *change) any { return &c.Progress.Total }},
	{"last_error", nullable, said, func(t *task) any { return &t.LastError }, func(c *change) any { return &c.LastError }},
	{"error_message", nullable, said, func(t *task) any { return &t.ErrorMessage }, func(c *change) any { return &c.ErrorMessage }},
	{"error_code", sharedOrNull, said, func(t *task) any { return &t.ErrorCode }, func(c *change) any { return &c.ErrorCode }},
	{"result", nullable, said, func(t *task) any { return &t.Result }, func(c *change) any { return &c.Result }},

	{"created_at", instant, said, func(t *task) any { return &t.CreatedAt }, nil},
	{"updated_at", instant, 0, func(t *task) any { return &t.UpdatedAt }, nil}, // every statement writes it
}

// reader takes one row after the other. Numbers are int64 and texts raw bytes: database/sql converts neither, and words that
// come again and again are not allocated again.
type reader struct {
	columns []column
	texts   []sql.RawBytes
	numbers []int64
	times   []taskstate.DBTime
	words   map[string]string
	packed  bool // the names of deliveries are
}

// newReader makes a reader, and the places for Scan in the columns' order.
func newReader(columns []column, packed bool) (*reader, []any) {
	n := len(columns)
	r := &reader{
		columns: columns, texts: make([]sql.RawBytes, n), numbers: make([]int64, n), times: make([]taskstate.DBTime, n),
		words: map[string]string{}, packed: packed,
	}
	targets := make([]any, n)
	for i, c := range columns {
		switch c.kind {
		case number:
			targets[i] = &r.numbers[i]
		case instant, nullableInstant:
			targets[i] = &r.times[i]
		case text, word, nullable, sharedOrNull, owner, digits:
			targets[i] = &r.texts[i]
		}
	}
	return r, targets
}

// put writes the row that was scanned into t.
func (r *reader) put(t *task) {
	for i, c := range r.columns {
		switch p := c.field(t).(type) {
		case *string:
			*p = r.text(i)
		case *json.RawMessage:
			*p = nil
			if r.texts[i] != nil {
				*p = json.RawMessage(string(r.texts[i]))
			}
		case *int:
			*p = int(r.numbers[i])
		case *int64:
			*p = r.numbers[i]
		case *time.Time:
			*p = r.times[i].Time
		}
	}
}

// text is the i-th column's text.
func (r *reader) text(i int) string {
	switch k := r.columns[i].kind; {
	case k == digits && r.packed:
		return unpacked(r.texts[i])
	case k != word && k != sharedOrNull && k != owner:
		return string(r.texts[i])
	}
	if w, known := r.words[string(r.texts[i])]; known {
		return w
	}
	w := string(r.texts[i])
	r.words[w] = w
	return w
}

// apply makes t the row once c was written, exactly as the statement Update computes it.
func apply(columns []column, t *task, c *change, w written) {
	for _, col := range columns {
		if col.change == nil {
			continue
		}
		to, from := col.field(t), col.change(c)
		if p, isTime := to.(*time.Time); isTime {
			*p = w.time(*statement.As[*taskstate.Delay](from), *p)
		} else {
			set(to, from)
		}
	}
	t.UpdatedAt = w.at
}

// set copies a column's value from one pointer to another of its type; an empty JSON is none.
func set(to, from any) {
	switch p := to.(type) {
	case *string:
		*p = *statement.As[*string](from)
	case *int:
		*p = *statement.As[*int](from)
	case *int64:
		*p = *statement.As[*int64](from)
	case *json.RawMessage:
		if *p = *statement.As[*json.RawMessage](from); len(*p) == 0 {
			*p = nil
		}
	}
}

// inserted is the row that Insert makes of a new task at the instant now.
func inserted(columns []column, t *task, now time.Time) task {
	row := task{Status: taskstate.StatusQueued, DLQ: taskstate.DLQNone, WakeAt: now, EnqueuedAt: now, CreatedAt: now, UpdatedAt: now}
	row.Progress.Stage = taskstate.StageNone
	for _, col := range columns {
		if col.role&made != 0 {
			set(col.field(&row), col.field(t))
		}
	}
	return row
}

// stays reports whether a change leaves a column as it is in before: of claims and what succeeded nobody reads when the state wakes.
func (c column) stays(before *task, by *change) bool {
	switch to := c.change(by).(type) {
	case *taskstate.Delay:
		return to.Kind == taskstate.DelayKeep || to.Kind == taskstate.DelayLease || by.To == taskstate.StatusSucceeded && c.name == wakeAt
	default:
		return same(to, c.field(before))
	}
}

// same reports whether two pointers of one type, both of a column, have the same value.
func same(a, b any) bool {
	switch a := a.(type) {
	case *string:
		return *a == *statement.As[*string](b)
	case *int:
		return *a == *statement.As[*int](b)
	case *int64:
		return *a == *statement.As[*int64](b)
	case *json.RawMessage:
		return bytes.Equal(*a, *statement.As[*json.RawMessage](b))
	case *taskstate.Delay:
		d := statement.As[*taskstate.Delay](b)
		return a.Kind == d.Kind && boundedMicros(a.In) == boundedMicros(d.In)
	}
	return false
}

// argument is what a pointer of a column says, as drivers take it; nil: NULL.
func (c column) argument(p any) any {
	switch p := p.(type) {
	case *string:
		switch {
		case *p == "" && (c.kind == nullable || c.kind == sharedOrNull):
			return nil
		case c.kind == digits:
			return packed(*p)
		}
		return *p
	case *json.RawMessage:
		if len(*p) == 0 {
			return nil
		}
		return string(*p)
	case *int:
		return *p
	case *int64:
		return *p
	}
	panic("taskstore: column " + c.name + " has no argument")
}

// A delivery's name has few kinds of characters. MySQL keeps two of them in a byte, so that a state is narrow and of constant
// width.

const (
	deliveryChars = "0123456789-:k./"
	maxDelivery   = 31
	noChar        = 0xF // fills what is left
)

// checkDelivery refuses the name of a delivery that states cannot keep.
func checkDelivery(name string) error {
	if len(name) > maxDelivery || strings.Trim(name, deliveryChars) != "" {
		return fmt.Errorf("%w: the delivery %q has more than %d characters, or others than %s", ErrInvalid, name, maxDelivery, deliveryChars)
	}
	return nil
}

// packed is such a name in 16 bytes.
func packed(name string) []byte {
	out := make([]byte, (maxDelivery+1)/2)
	for i := range out {
		out[i] = nibble(name, 2*i)<<4 | nibble(name, 2*i+1)
	}
	return out
}

// nibble is the i-th character of a name.
func nibble(name string, i int) byte {
	if i >= len(name) {
		return noChar
	}
	return byte(strings.IndexByte(deliveryChars, name[i])) //nolint:gosec // checkDelivery: it is one of 15
}

// unpacked is the name that packed was given.
func unpacked(raw []byte) string {
	out := make([]byte, 0, maxDelivery)
	for i := range 2 * len(raw) {
		n := raw[i/2] >> (4 * (1 - i%2)) & noChar
		if n == noChar {
			break
		}
		out = append(out, deliveryChars[n])
	}
	return string(out)
}
