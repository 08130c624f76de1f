package taskstore

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// taskRow takes one row of Columns.
type taskRow struct {
	task                                    taskstate.Task
	document, base, file, payload, result   sql.NullString
	key, lastError, errorMessage, errorCode sql.NullString
	retry, lease, wake, promised            taskstate.Stamp
	created, updated                        taskstate.Stamp
}

// targets are the places of Columns, in its order.
func (r *taskRow) targets() []any {
	t := &r.task
	return []any{
		&t.ID, &t.UserID, &r.document, &r.base, &r.file, &t.WorkflowID, &t.Type, &t.Channel, &t.ChatID,
		&r.payload, &r.result, &t.TraceParent, &r.key, &t.RequestHash,
		&t.Status, &t.Progress.Stage, &t.Progress.Percent, &t.Progress.Processed, &t.Progress.Total,
		&t.AttemptCount, &t.MaxAttempts, &t.CrashCount, &t.ThrottleCount, &r.retry,
		&r.lastError, &r.errorMessage, &r.errorCode,
		&t.Fence, &t.LeaseOwner, &r.lease, &r.wake, &r.promised, &t.PromiseCount, &t.DLQ, &t.Delivery,
		&t.AttemptTrace,
		&r.created, &r.updated,
	}
}

// value is the task that was scanned.
func (r *taskRow) value() taskstate.Task {
	t := r.task
	t.DocumentID, t.KnowledgeBase, t.FilePath = r.document.String, r.base.String, r.file.String
	t.Payload, t.Result = raw(r.payload), raw(r.result)
	t.IdempotencyKey = r.key.String
	t.LastError, t.ErrorMessage, t.ErrorCode = r.lastError.String, r.errorMessage.String, r.errorCode.String
	t.NextRetryAt, t.LeaseExpiresAt, t.WakeAt, t.PromisedAt = r.retry.Time, r.lease.Time, r.wake.Time, r.promised.Time
	t.CreatedAt, t.UpdatedAt = r.created.Time, r.updated.Time
	return t
}

// raw is JSON text, nil for NULL.
func raw(s sql.NullString) json.RawMessage {
	if !s.Valid {
		return nil
	}
	return json.RawMessage(s.String)
}

// scanTasks reads all rows; head, when not nil, takes the columns that stand before the task's, the same in each row.
func scanTasks(rows *sql.Rows, head ...any) ([]taskstate.Task, error) {
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	var out []taskstate.Task
	for rows.Next() {
		var r taskRow
		if err := rows.Scan(append(append([]any{}, head...), r.targets()...)...); err != nil {
			return nil, fmt.Errorf("scan task: %w", err)
		}
		out = append(out, r.value())
	}
	return out, rows.Err()
}

// scanTransitions reads all rows of TransitionColumns.
func scanTransitions(rows *sql.Rows) ([]taskstate.Transition, error) {
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	var out []taskstate.Transition
	for rows.Next() {
		var t taskstate.Transition
		var from sql.NullString
		var lease, retry, created taskstate.Stamp
		err := rows.Scan(&t.ID, &t.TaskID, &from, &t.To, &t.Reason, &t.AttemptCount, &t.CrashCount, &t.Fence, &t.Timeline,
			&t.Actor, &t.Message, &lease, &retry, &t.Delivery, &created)
		if err != nil {
			return nil, fmt.Errorf("scan transition: %w", err)
		}
		t.From = taskstate.Status(from.String)
		t.LeaseExpiresAt, t.NextRetryAt, t.CreatedAt = lease.Time, retry.Time, created.Time
		out = append(out, t)
	}
	return out, rows.Err()
}
