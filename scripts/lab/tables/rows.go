// Package tables reads the tables of an installation directly.
package tables

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Texts reads a statement of one column.
func Texts(ctx context.Context, tx taskstate.Tx, statement string, args ...any) ([]string, error) {
	return Query(ctx, tx, func(r *sql.Rows) (s string, err error) { err = r.Scan(&s); return s, err }, statement, args...)
}

// TaskRow is what the audit reads of a task.
type TaskRow struct {
	ID, Base, File    string
	Status            taskstate.Status
	Attempts, Crashes int
	DLQ               taskstate.DLQState
	LastError         string
}

// Query reads all rows of a statement.
func Query[T any](ctx context.Context, tx taskstate.Tx, scan func(*sql.Rows) (T, error), text string, args ...any) ([]T, error) {
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

// Tasks reads every task.
func Tasks(ctx context.Context, tx taskstate.Tx) ([]TaskRow, error) {
	return Query(ctx, tx, func(r *sql.Rows) (t TaskRow, err error) {
		err = r.Scan(&t.ID, &t.Base, &t.File, &t.Status, &t.Attempts, &t.Crashes, &t.DLQ, &t.LastError)
		return t, err
	}, `SELECT t.ID, COALESCE(t.knowledge_base_id, ''), COALESCE(d.file_name, ''), t.Status, t.attempt_count, t.crash_count,
		t.dlq_state, COALESCE(t.last_error, '')
		FROM ingest_task t LEFT JOIN knowledge_document d ON d.id = t.document_id`)
}

// transitions reads the logs of one task, or of all with id "", each in its order.
func transitions(ctx context.Context, tx taskstate.Tx, id string) ([]taskstate.Transition, error) {
	return Query(ctx, tx, func(r *sql.Rows) (t taskstate.Transition, err error) {
		var at, next taskstate.DBTime
		err = r.Scan(&t.ID, &t.TaskID, &t.From, &t.To, &t.Reason, &t.AttemptCount, &t.CrashCount, &t.Fence, &t.Epoch, &t.Actor, &t.Message, &t.Delivery, &next, &at)
		t.CreatedAt, t.NextRetryAt, t.Delivery = at.Time, next.Time, strings.TrimSpace(t.Delivery)
		return t, err
	}, `SELECT id, task_id, COALESCE(from_status, ''), to_status, reason, attempt_count, crash_count, fence, timeline, actor, message, delivery,
		next_retry_at, created_at FROM ingest_task_transition WHERE ? = '' OR task_id = ? ORDER BY task_id, id`, id, id)
}

// CountStatus counts tasks by their status.
func CountStatus(ctx context.Context, tx taskstate.Tx) (map[taskstate.Status]int, error) {
	return counts[taskstate.Status](ctx, tx, `SELECT status, COUNT(*) FROM ingest_task GROUP BY status`)
}

// counts reads a statement of two columns, a key and how often it is there.
func counts[K ~string](ctx context.Context, tx taskstate.Tx, statement string) (map[K]int, error) {
	out := map[K]int{}
	_, err := Query(ctx, tx, func(r *sql.Rows) (key K, err error) {
		n := 0
		err = r.Scan(&key, &n)
		out[key] = n
		return key, err
	}, statement)
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
	return Query(ctx, tx, func(r *sql.Rows) (h Held, err error) {
		err = r.Scan(&h.TaskID, &h.Owner, &h.Fence, &h.File)
		return h, err
	}, `SELECT t.ID, t.lease_owner, t.fence, COALESCE(d.file_name, '') FROM ingest_task t
		LEFT JOIN knowledge_document d ON d.id = t.document_id WHERE t.Status = 'RUNNING'`)
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

// Lost counts QUEUED tasks beside a loss of the queue: Old and Young were accepted before the loss, Old long before, and
// their promise is from before it; OldQueued are all old ones that wait, enqueued again or not.
type Lost struct{ Old, Young, OldQueued int }

// Waiting counts the tasks that wait after a loss at a time; those accepted before the time old count as old.
func Waiting(ctx context.Context, tx taskstate.Tx, loss, old time.Time) (l Lost, err error) {
	err = tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(CASE WHEN created_at < ? AND promised_at < ? THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN created_at >= ? AND promised_at < ? THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN created_at < ? THEN 1 ELSE 0 END), 0)
		FROM ingest_task WHERE status = 'QUEUED'`, old, loss, old, loss, old).Scan(&l.Old, &l.Young, &l.OldQueued)
	return l, err
}

// OutboxEvent is what drills read of an event of the outbox.
type OutboxEvent struct {
	Seq         int64
	ID, Topic   string
	Key         string // the task's id
	Status      string
	Cause       string
	Attempts    int
	NextRetryAt time.Time // zero: none
	LastError   string
	CreatedAt   time.Time
	SentAt      time.Time // zero: not sent
}

// Outbox reads all events, oldest first.
func Outbox(ctx context.Context, tx taskstate.Tx) ([]OutboxEvent, error) {
	return Query(ctx, tx, func(r *sql.Rows) (e OutboxEvent, err error) {
		var next, created, sent taskstate.DBTime
		err = r.Scan(&e.Seq, &e.ID, &e.Topic, &e.Key, &e.Status, &e.Cause, &e.Attempts, &next, &e.LastError, &created, &sent)
		e.NextRetryAt, e.CreatedAt, e.SentAt = next.Time, created.Time, sent.Time
		return e, err
	}, `SELECT seq, id, topic, message_key, status, cause, attempt_count, next_retry_at, COALESCE(last_error, ''), created_at, sent_at
		FROM outbox_event ORDER BY seq`)
}

// Leased are the ids of the events that a relay has leased and not marked: what is in flight.
func Leased(ctx context.Context, tx taskstate.Tx) (map[string]bool, error) {
	ids, err := Query(ctx, tx, func(r *sql.Rows) (id string, err error) {
		err = r.Scan(&id)
		return strings.TrimSpace(id), err
	}, `SELECT id FROM outbox_event WHERE status IN ('NEW', 'RETRYING') AND lease <> ''`)
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out, err
}

// CountOutbox counts events by their status.
func CountOutbox(ctx context.Context, tx taskstate.Tx) (map[string]int, error) {
	return counts[string](ctx, tx, `SELECT status, COUNT(*) FROM outbox_event GROUP BY status`)
}
