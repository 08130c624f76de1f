package taskstore

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// taskRow takes one row of Columns after the other. Numbers are int64 and texts raw bytes: database/sql converts neither,
// and words that come again and again are not allocated again.
type taskRow struct {
	id, user, document, base, file, workflow, typ, channel, chat sql.RawBytes
	payload, result, traceParent, request, key, requestHash      sql.RawBytes
	status, stage, lastError, errorMessage, errorCode            sql.RawBytes
	owner, dlq, delivery, attemptTrace                           sql.RawBytes
	percent, processed, total, attempts, max, crashes, throttles int64
	fence, enqueues                                              int64
	retry, lease, wake, enqueued, created, updated               taskstate.DBTime
	words                                                        map[string]string
}

// targets are the places of Columns, in its order.
func (r *taskRow) targets() []any {
	return []any{
		&r.id, &r.user, &r.document, &r.base, &r.file, &r.workflow, &r.typ, &r.channel, &r.chat,
		&r.payload, &r.result, &r.traceParent, &r.request, &r.key, &r.requestHash,
		&r.status, &r.stage, &r.percent, &r.processed, &r.total,
		&r.attempts, &r.max, &r.crashes, &r.throttles, &r.retry,
		&r.lastError, &r.errorMessage, &r.errorCode,
		&r.fence, &r.owner, &r.lease, &r.wake, &r.enqueued, &r.enqueues, &r.dlq, &r.delivery,
		&r.attemptTrace,
		&r.created, &r.updated,
	}
}

// word is a text that other rows have too.
func (r *taskRow) word(b sql.RawBytes) string {
	if w, known := r.words[string(b)]; known {
		return w
	}
	w := string(b)
	r.words[w] = w
	return w
}

// put writes the task that was scanned.
func (r *taskRow) put(t *taskstate.Task) {
	*t = taskstate.Task{
		ID: string(r.id), UserID: r.word(r.user), DocumentID: string(r.document), KnowledgeBase: r.word(r.base),
		FilePath: string(r.file), WorkflowID: r.word(r.workflow), Type: r.word(r.typ), Channel: r.word(r.channel),
		ChatID: string(r.chat), Payload: raw(r.payload), Result: raw(r.result), TraceParent: string(r.traceParent), RequestID: string(r.request),
		IdempotencyKey: string(r.key), RequestHash: string(r.requestHash),
		Status: taskstate.Status(r.word(r.status)),
		Progress: taskstate.Progress{
			Stage: taskstate.Stage(r.word(r.stage)), Percent: int(r.percent), Processed: int(r.processed), Total: int(r.total),
		},
		AttemptCount: int(r.attempts), MaxAttempts: int(r.max), CrashCount: int(r.crashes), ThrottleCount: int(r.throttles),
		NextRetryAt: r.retry.Time, LastError: string(r.lastError), ErrorMessage: string(r.errorMessage), ErrorCode: r.word(r.errorCode),
		Fence: r.fence, LeaseOwner: r.word(r.owner), LeaseExpiresAt: r.lease.Time, WakeAt: r.wake.Time,
		EnqueuedAt: r.enqueued.Time, EnqueueCount: int(r.enqueues), DLQ: taskstate.DLQState(r.word(r.dlq)),
		Delivery: string(r.delivery), AttemptTrace: string(r.attemptTrace),
		CreatedAt: r.created.Time, UpdatedAt: r.updated.Time,
	}
}

// raw is JSON text, nil for NULL.
func raw(b sql.RawBytes) json.RawMessage {
	if b == nil {
		return nil
	}
	return json.RawMessage(string(b))
}

// scanTasks reads all rows; head, when not nil, takes the columns that stand before the task's, the same in each row.
// Room is made for n rows at once.
func scanTasks(rows *sql.Rows, n int, head ...any) ([]taskstate.Task, error) {
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	r := taskRow{words: map[string]string{}}
	targets := append(head, r.targets()...)
	out := make([]taskstate.Task, 0, n)
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return nil, fmt.Errorf("scan task: %w", err)
		}
		out = append(out, taskstate.Task{})
		r.put(&out[len(out)-1])
	}
	return out, rows.Err()
}

// scanTransitions reads all rows of TransitionColumns.
func scanTransitions(rows *sql.Rows) ([]taskstate.Transition, error) {
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	var out []taskstate.Transition
	for rows.Next() {
		var t taskstate.Transition
		var from, code sql.NullString
		var lease, retry, created taskstate.DBTime
		err := rows.Scan(&t.ID, &t.TaskID, &from, &t.To, &t.Reason, &t.AttemptCount, &t.CrashCount, &t.Fence, &t.Epoch,
			&t.Actor, &t.Message, &lease, &retry, &t.Delivery, &code, &created)
		if err != nil {
			return nil, fmt.Errorf("scan transition: %w", err)
		}
		t.From, t.ErrorCode = taskstate.Status(from.String), code.String
		t.LeaseExpiresAt, t.NextRetryAt, t.CreatedAt = lease.Time, retry.Time, created.Time
		out = append(out, t)
	}
	return out, rows.Err()
}
