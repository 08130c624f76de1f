package lab

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// taskRow is what the audit reads of a task.
type taskRow struct {
	id, document, file string
	status             taskstate.Status
	attempts, max      int
	crashes            int
	fence              int64
	dlq                taskstate.DLQState
	code, lastError    string
}

// documentRow is a document with its visible version as its own row says.
type documentRow struct {
	id, base, status string
	visible          string
	segments         int
	deleted          bool
}

// versionRow is a take of a document.
type versionRow struct {
	id, document, task, state string
	segments                  int
}

// segmentRow is a piece of a version.
type segmentRow struct {
	version, vector string
	index           int
}

// query reads all rows of a statement.
func query[T any](ctx context.Context, tx taskstate.Tx, scan func(*sql.Rows) (T, error), text string, args ...any) ([]T, error) {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says it
	var out []T
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

// tasks reads every task.
func tasks(ctx context.Context, tx taskstate.Tx) ([]taskRow, error) {
	return query(ctx, tx, func(r *sql.Rows) (t taskRow, err error) {
		err = r.Scan(&t.id, &t.document, &t.file, &t.status, &t.attempts, &t.max, &t.crashes, &t.fence, &t.dlq, &t.code, &t.lastError)
		return t, err
	}, `SELECT t.id, COALESCE(t.document_id, ''), COALESCE(d.file_name, ''), t.status, t.attempt_count, t.max_attempts, t.crash_count,
		t.fence, t.dlq_state, COALESCE(t.error_code, ''), COALESCE(t.last_error, '')
		FROM ingest_task t LEFT JOIN knowledge_document d ON d.id = t.document_id`)
}

// transitions reads the logs of one task, or of all with id "", each in its order.
func transitions(ctx context.Context, tx taskstate.Tx, id string) ([]taskstate.Transition, error) {
	return query(ctx, tx, func(r *sql.Rows) (t taskstate.Transition, err error) {
		var at, next taskstate.Stamp
		err = r.Scan(&t.ID, &t.TaskID, &t.From, &t.To, &t.Reason, &t.AttemptCount, &t.CrashCount, &t.Fence, &t.Timeline, &t.Actor, &t.Message, &next, &at)
		t.CreatedAt, t.NextRetryAt = at.Time, next.Time
		return t, err
	}, `SELECT id, task_id, COALESCE(from_status, ''), to_status, reason, attempt_count, crash_count, fence, timeline, actor, message,
		next_retry_at, created_at FROM ingest_task_transition WHERE ? = '' OR task_id = ? ORDER BY task_id, id`, id, id)
}

// documents reads every document.
func documents(ctx context.Context, tx taskstate.Tx) ([]documentRow, error) {
	return query(ctx, tx, func(r *sql.Rows) (d documentRow, err error) {
		err = r.Scan(&d.id, &d.base, &d.status, &d.visible, &d.segments, &d.deleted)
		return d, err
	}, `SELECT id, base_id, status, COALESCE(visible_version_id, ''), segment_count, CASE WHEN deleted_at IS NULL THEN 0 ELSE 1 END
		FROM knowledge_document`)
}

// versions reads every version.
func versions(ctx context.Context, tx taskstate.Tx) ([]versionRow, error) {
	return query(ctx, tx, func(r *sql.Rows) (v versionRow, err error) {
		err = r.Scan(&v.id, &v.document, &v.task, &v.state, &v.segments)
		return v, err
	}, `SELECT id, document_id, task_id, state, segment_count FROM document_version`)
}

// segments reads every segment in its version's order.
func segments(ctx context.Context, tx taskstate.Tx) ([]segmentRow, error) {
	return query(ctx, tx, func(r *sql.Rows) (s segmentRow, err error) {
		err = r.Scan(&s.version, &s.index, &s.vector)
		return s, err
	}, `SELECT version_id, segment_index, vector_id FROM knowledge_segment ORDER BY version_id, segment_index`)
}

// garbage are the vector ids that are waiting to be removed.
func garbage(ctx context.Context, tx taskstate.Tx) ([]string, error) {
	return query(ctx, tx, func(r *sql.Rows) (id string, err error) { err = r.Scan(&id); return id, err },
		`SELECT vector_id FROM vector_garbage`)
}

// CountStatus counts tasks by their status.
func CountStatus(ctx context.Context, tx taskstate.Tx) (map[taskstate.Status]int, error) {
	type count struct {
		status taskstate.Status
		n      int
	}
	rows, err := query(ctx, tx, func(r *sql.Rows) (c count, err error) { err = r.Scan(&c.status, &c.n); return c, err },
		`SELECT status, COUNT(*) FROM ingest_task GROUP BY status`)
	out := map[taskstate.Status]int{}
	for _, c := range rows {
		out[c.status] = c.n
	}
	return out, err
}

// Log reads the transitions of one task, oldest first.
func Log(ctx context.Context, tx taskstate.Tx, id string) ([]taskstate.Transition, error) {
	return transitions(ctx, tx, id)
}

// Logs reads the transitions of all tasks, each task's oldest first.
func Logs(ctx context.Context, tx taskstate.Tx) (map[string][]taskstate.Transition, error) {
	all, err := transitions(ctx, tx, "")
	out := map[string][]taskstate.Transition{}
	for _, t := range all {
		out[t.TaskID] = append(out[t.TaskID], t)
	}
	return out, err
}

// Held is a claim as its row says.
type Held struct {
	TaskID, Owner, File string
	Fence               int64
}

// Running lists the claims that are held now.
func Running(ctx context.Context, tx taskstate.Tx) ([]Held, error) {
	return query(ctx, tx, func(r *sql.Rows) (h Held, err error) {
		err = r.Scan(&h.TaskID, &h.Owner, &h.Fence, &h.File)
		return h, err
	}, `SELECT t.id, t.lease_owner, t.fence, COALESCE(d.file_name, '') FROM ingest_task t
		LEFT JOIN knowledge_document d ON d.id = t.document_id WHERE t.status = 'RUNNING'`)
}

// Chain shows a log as a person reads it.
func Chain(log []taskstate.Transition) string {
	text := ""
	for _, t := range log {
		text += fmt.Sprintf("    %s %s→%s %s attempt=%d crash=%d fence=%d by %s %s\n",
			t.CreatedAt.Format("15:04:05.000000"), t.From, t.To, t.Reason, t.AttemptCount, t.CrashCount, t.Fence, t.Actor, t.Message)
	}
	return text
}
