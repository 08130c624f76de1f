package taskstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/call"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// Limits of a new task's fields, in characters; the columns are as wide.
const (
	maxID      = 36
	maxUser    = 190
	maxPath    = 1024
	maxName    = 190
	maxType    = 64
	maxChannel = 32
	maxTrace   = 64
	maxRequest = 128
	maxKey     = 512
	maxPayload = 256 << 10 // bytes (contract §5)
	// A hook that met another call's fresh row is run again so often, and then sees that row.
	maxUniqueRetries = 3
)

// keyIndex is how every dialect names the unique index of (user_id, idempotency_key) in its error;
// SQLite names the columns instead.
const (
	keyIndex   = "ingest_task_key"
	keyColumns = "ingest_task_body.idempotency_key"
)

// submission is one call of Submit. Its results are those of the attempt that counted.
type submission struct {
	store   *Store
	prepare taskstate.PrepareFunc
	callID  []byte
	tasks   []taskstate.NewTask
	moment  taskstate.DBClock
	out     []taskstate.Task
	events  int // messages that the outbox wrote
}

// Submit implements taskstate.Store.
// A unique key of prepare's own rows that another call took at the same moment makes prepare run again, up to 3 times.
func (s *Store) Submit(ctx context.Context, prepare taskstate.PrepareFunc) ([]taskstate.Task, error) {
	sub := &submission{store: s, prepare: prepare, callID: newCallID()}
	for try := 0; ; try++ {
		err := s.Run(ctx, sqldb.Call{Name: "submit", What: "submit", Work: sub.work, Resolve: sub.resolve})
		if err == nil {
			break
		}
		if s.ClassOf(err) != sqldb.Unique {
			return nil, err
		}
		if m := err.Error(); strings.Contains(m, keyIndex) || strings.Contains(m, keyColumns) {
			return nil, fmt.Errorf("submit: %w", taskstate.ErrDuplicateKey)
		}
		if try == maxUniqueRetries {
			return nil, err
		}
	}
	s.rang(sub.events)
	return sub.out, nil
}

// work is the inside of the transaction.
func (b *submission) work(ctx context.Context, tx taskstate.Tx) (bool, error) {
	b.tasks, b.out, b.events = nil, nil, 0
	m, err := b.store.ClockIn(ctx, tx)
	if err != nil {
		return false, err
	}
	b.moment = m
	if b.tasks, err = b.prepare(ctx, tx, m); err != nil {
		return false, err
	}
	if len(b.tasks) == 0 {
		return true, nil
	}
	if err := b.insert(ctx, tx); err != nil {
		return false, err
	}
	b.out = make([]taskstate.Task, len(b.tasks))
	for i := range b.tasks {
		b.out[i] = inserted(b.store.columns, &b.tasks[i].Task, m.Now)
	}
	if err := b.deliver(ctx, tx); err != nil {
		return false, err
	}
	if err := crash.Fault("api.before_commit"); err != nil {
		return false, err
	}
	return true, nil
}

// insert writes the tasks in id order (the order of locks everywhere) and their first transitions.
func (b *submission) insert(ctx context.Context, tx taskstate.Tx) error {
	sorted, byID := b.tasks, func(x, y taskstate.NewTask) int { return strings.Compare(x.ID, y.ID) }
	if !slices.IsSortedFunc(sorted, byID) { // they mostly are, and the caller keeps its order
		sorted = slices.SortedFunc(slices.Values(b.tasks), byID)
	}
	batch, log := make([]*task, len(sorted)), make([]call.Row, len(sorted))
	for i, t := range sorted {
		if err := validate(t); err != nil {
			return err
		}
		batch[i] = &sorted[i].Task
		log[i] = call.Row{ID: t.ID, Whose: whoseIs(batch[i]), To: taskstate.StatusQueued, Reason: taskstate.ReasonAccepted, Actor: clean(t.Actor.String()), Wake: b.moment.Now}
	}
	for chunk := range slices.Chunk(batch, statement.MaxRows) {
		for _, part := range bySize(chunk, func(t *task) int { return len(t.Payload) + len(t.FilePath) }) {
			for _, insert := range b.store.insertStatements(part, b.moment.Now) {
				if err := (sqldb.Write{Part: insert}).Exec(ctx, tx); err != nil {
					return fmt.Errorf("insert tasks: %w", err)
				}
			}
		}
	}
	for part := range slices.Chunk(log, statement.MaxRows) {
		if err := b.store.calls().Insert(ctx, tx, part, call.Head{ID: b.callID, Epoch: b.moment.Epoch, At: b.moment.Now}); err != nil {
			return err
		}
	}
	return nil
}

// resolve finds out whether the last attempt's COMMIT was done. Rows of a transaction that has not ended are not to be
// seen and, on Postgres, cannot be locked either; but inserting one of them once more waits for its end everywhere.
func (b *submission) resolve(ctx context.Context, tx taskstate.Tx) (bool, error) {
	if len(b.tasks) == 0 {
		return false, nil
	}
	for _, insert := range b.store.insertStatements([]*task{&b.tasks[0].Task}, b.moment.Now) {
		_, err := tx.ExecContext(ctx, insert.Text, insert.Args...)
		if err != nil && b.store.ClassOf(err) == sqldb.Unique {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil // and rolled back
}

// validate refuses a task that not every dialect could keep as it is.
func validate(t taskstate.NewTask) error {
	bad := func(field, why string) error {
		return fmt.Errorf("task %q: %w: %s %s", t.ID, ErrInvalid, field, why)
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{
		{"document id", t.DocumentID, maxID}, {"knowledge base", t.KnowledgeBase, maxID},
		{"trace parent", t.TraceParent, maxTrace}, {"request id", t.RequestID, maxRequest}, {"request hash", t.RequestHash, maxTrace},
	} {
		if f.value != "" && !ascii(f.value, f.limit) {
			return bad(f.name, fmt.Sprintf("must be printable ASCII, at most %d characters", f.limit))
		}
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{
		{"user", t.UserID, maxUser}, {"file path", t.FilePath, maxPath}, {"workflow", t.WorkflowID, maxName},
		{"type", t.Type, maxType}, {"channel", t.Channel, maxChannel}, {"chat", t.ChatID, maxName}, {"idempotency key", t.IdempotencyKey, maxKey},
	} {
		switch {
		case clean(f.value) != f.value:
			return bad(f.name, "must be UTF-8 without NUL")
		case utf8.RuneCountInString(f.value) > f.limit:
			return bad(f.name, fmt.Sprintf("is longer than %d characters", f.limit))
		case strings.TrimRight(f.value, " ") != f.value:
			return bad(f.name, "ends in a space") // MySQL's ASCII columns, and its others before migration 006, compare without them
		}
	}
	switch {
	case !isUUID(t.ID):
		return bad("id", "must be a UUID in lower case")
	case t.UserID == "":
		return bad("user", "is empty")
	case t.Type == "":
		return bad("type", "is empty")
	case t.MaxAttempts < 1:
		return bad("max attempts", "is below 1")
	case len(t.Payload) > maxPayload:
		return bad("payload", "is larger than 256 KiB")
	case len(t.Payload) > 0 && clean(string(t.Payload)) != string(t.Payload):
		return bad("payload", "must be UTF-8 without NUL")
	}
	return nil
}

// ascii reports whether text is printable ASCII without spaces, not empty and at most limit long.
func ascii(text string, limit int) bool {
	return text != "" && len(text) <= limit && sqldb.ASCII(text)
}
