package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

const (
	// dlqSuffix makes the topic of dead letters out of that of deliveries (contract §5).
	dlqSuffix = "-dlq"
	// maxStatement bounds the payloads of one statement, well below what the servers take as one message.
	maxStatement = 4 << 20
)

// DLQTopic is the topic of the dead letters that belong to a topic of deliveries.
func DLQTopic(topic string) string { return topic + dlqSuffix }

// Writer writes events into the transactions of their tasks (design D11). It is safe for concurrent use.
type Writer struct {
	topic, group string
	dialect      sqldb.Dialect
	queries      sqldb.Queries
}

// NewWriter makes a writer of deliveries for a topic and a group of consumers, over a database of that dialect.
func NewWriter(dialect, topic, group string) *Writer {
	d := sqldb.Dialect(dialect)
	return &Writer{topic: topic, group: group, dialect: d, queries: sqldb.MustLoad(queryFiles, "queries", dialect)}
}

// DeadLetter is a dead letter as a record's value (contract §5).
type DeadLetter struct {
	TaskID         string    `json:"taskId"`
	Fence          int64     `json:"fence"`
	SourceStream   string    `json:"sourceStream"` // the topic of deliveries
	SourceGroup    string    `json:"sourceGroup"`
	SourceRecordID string    `json:"sourceRecordId"` // the delivery that brought the last claim; may be empty
	LastError      string    `json:"lastError"`
	AttemptCount   int       `json:"attemptCount"`
	FailedAt       time.Time `json:"failedAt"`
}

// newEvent is a row to insert.
type newEvent struct {
	ID          string    `json:"id"`
	Topic       string    `json:"topic"`
	Key         string    `json:"key"`
	Payload     string    `json:"payload"`
	TraceParent string    `json:"traceparent"`
	Created     time.Time `json:"created"`
}

// Write implements taskstate.OutboxFunc: for each row a delivery, for a DEAD one its dead letter; in one statement unless
// payloads are large. Errors: those of package proto for a row that is no envelope, and the database's.
func (w *Writer) Write(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock, rows []taskstate.Changed) (int, error) {
	events := make([]newEvent, len(rows))
	for i, r := range rows {
		var err error
		if events[i], err = w.eventOf(r.Task); err != nil {
			return 0, fmt.Errorf("event of task %s: %w", r.Task.ID, err)
		}
	}
	size := func(i int) int { return len(events[i].Payload) }
	for from, to := range ingestq.Portions(len(events), len(events), maxStatement, size) {
		if err := w.insert(ctx, tx, events[from:to]); err != nil {
			return 0, err
		}
	}
	return len(events), nil
}

// eventOf makes the event of a row as it is after its change.
func (w *Writer) eventOf(t taskstate.Task) (newEvent, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return newEvent{}, err
	}
	e := newEvent{ID: id.String(), Topic: w.topic, Key: t.ID, TraceParent: t.TraceParent, Created: t.UpdatedAt.UTC()}
	var payload []byte
	if t.Status == taskstate.StatusDead {
		e.Topic = DLQTopic(w.topic)
		payload, err = json.Marshal(DeadLetter{
			TaskID: t.ID, Fence: t.Fence, SourceStream: w.topic, SourceGroup: w.group, SourceRecordID: t.Delivery,
			LastError: t.LastError, AttemptCount: t.AttemptCount, FailedAt: t.UpdatedAt.UTC(),
		})
	} else {
		payload, err = pb.Encode(ingestq.EnvelopeOf(t))
	}
	e.Payload = string(payload)
	return e, err
}

// insert writes events with one statement.
func (w *Writer) insert(ctx context.Context, tx taskstate.Tx, events []newEvent) (err error) {
	end := created(ctx, events)
	defer func() { end(err) }()
	var args []any
	query := w.queries.Get("EventInsert")
	if w.dialect == sqldb.Postgres {
		text, err := json.Marshal(events)
		if err != nil {
			return fmt.Errorf("encode events: %w", err)
		}
		args = []any{string(text)}
	} else {
		query = w.queries.Rows("EventInsert", len(events))
		args = make([]any, 0, 7*len(events))
		for _, e := range events {
			args = append(args, e.ID, e.Topic, e.Key, e.Payload, e.TraceParent, e.Created, e.Created)
		}
	}
	if err := (sqldb.Write{Part: sqldb.Part{Text: query, Args: args}}).Exec(ctx, tx); err != nil {
		return fmt.Errorf("write %d events: %w", len(events), err)
	}
	return nil
}

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
