package tables

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

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
