package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Reader is what the loops of tasks ask of their events: what became of deliveries (design D5), and the dead letters that the
// other transport has left (design D11). It is safe for concurrent use.
type Reader struct {
	store   taskstate.DB
	topic   string // of deliveries
	queries sqldb.Queries
}

// NewReader makes an embedding cache of the events of a topic of deliveries and its dead letters.
func NewReader(store taskstate.DB, topic string) *Reader {
	return &Reader{store: store, topic: topic, queries: sqldb.MustLoad(queryFiles, "queries", store.Dialect())}
}

// Trails implements taskrun.Outbox.
func (l *Reader) Trails(ctx context.Context, tx taskstate.Tx, taskIDs []string) (map[string]taskstate.EventTrail, error) {
	if len(taskIDs) == 0 {
		return nil, nil
	}
	query := l.queries.Bind("EventTrails", sqldb.Parts{"list": sqldb.List(taskIDs)}, l.topic)
	events, err := sqldb.Collect(ctx, tx, scanTrail, query.Text, query.Args...)
	out := make(map[string]taskstate.EventTrail, len(taskIDs))
	for _, e := range events {
		trail := out[e.Key]
		switch e.Status {
		case StatusNew, StatusRetrying:
			trail.Waiting = true
		case StatusSent:
			if e.Seq > trail.LastSent {
				trail.LastSent, trail.SentAt = e.Seq, e.SentAt
			}
		case StatusDead:
			trail.LastDead = max(trail.LastDead, e.Seq)
		}
		out[e.Key] = trail
	}
	return out, err
}

// scanTrail reads what a trail needs of an event.
func scanTrail(rows *sql.Rows) (e Event, err error) {
	var sent taskstate.DBTime
	err = rows.Scan(&e.Key, &e.Seq, &e.Status, &sent)
	e.SentAt = sent.Time
	return e, err
}

// Delivery returns the last event that carries a task's delivery, without its payload; nil: the task has none.
func (l *Reader) Delivery(ctx context.Context, taskID string) (*Event, error) {
	query := strings.Join([]string{
		l.queries.Get("ListColumns"), l.queries.Get("ListByTask"), l.queries.Get("ListTopic"), l.queries.Get("ListOrderSeq"),
	}, "\n")
	items, err := read(ctx, l.store, scanItem, query, taskID, l.topic, 1)
	if err != nil || len(items) == 0 {
		return nil, wrap("event of task "+taskID, err)
	}
	return &items[0].Event, nil
}

// UnsentDeadLetters implements taskrun.Outbox. An event whose payload is no dead letter is left out.
func (l *Reader) UnsentDeadLetters(ctx context.Context, n int) ([]ingestq.UnsentDeadLetter, error) {
	var out []ingestq.UnsentDeadLetter
	err := l.store.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		out = nil
		for _, status := range []Status{StatusNew, StatusRetrying, StatusDead} {
			more, err := l.unsent(ctx, db, status, n-len(out))
			if err != nil {
				return err
			}
			if out = append(out, more...); len(out) >= n {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list unsent dead letters: %w", err)
	}
	return out, nil
}

// unsent lists those of one status.
func (l *Reader) unsent(ctx context.Context, db taskstate.Tx, status Status, n int) ([]ingestq.UnsentDeadLetter, error) {
	events, err := sqldb.Collect(ctx, db, scanDeadLetter, l.queries.Get("LettersUnsent"), string(status), DLQTopic(l.topic), n)
	var out []ingestq.UnsentDeadLetter
	for _, e := range events {
		var deadLetter DeadLetter
		if json.Unmarshal(e.Payload, &deadLetter) == nil && deadLetter.TaskID == e.Key {
			out = append(out, ingestq.UnsentDeadLetter{Seq: e.Seq, TaskID: e.Key, Fence: deadLetter.Fence})
		}
	}
	return out, err
}

// scanDeadLetter reads a dead letter.
func scanDeadLetter(rows *sql.Rows) (e Event, err error) {
	return e, rows.Scan(&e.Seq, &e.Key, &e.Payload)
}

// LockDeadLetters implements taskrun.Outbox.
func (l *Reader) LockDeadLetters(ctx context.Context, tx taskstate.Tx, seqs []int64) (map[int64]bool, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	query := l.queries.Bind("LettersLock", sqldb.Parts{"list": sqldb.List(seqs)})
	locked, err := sqldb.Collect(ctx, tx, sqldb.Column[int64], query.Text, query.Args...)
	out := make(map[int64]bool, len(locked))
	for _, seq := range locked {
		out[seq] = true
	}
	return out, err
}

// DropDeadLetters implements taskrun.Outbox.
func (l *Reader) DropDeadLetters(ctx context.Context, tx taskstate.Tx, seqs []int64) (int, error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	return exec(ctx, tx, l.queries.Bind("LettersDrop", sqldb.Parts{"list": sqldb.List(seqs)}))
}
