package tasks

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// submitTries bounds how often a submission that raced with another one starts again.
	submitTries = 5
	// One transaction takes so many at most, beyond which its fixed cost is no longer felt.
	submitMost = 128
	// A second transaction beside one at work uses the time of that one's commit, and is worth it for so many.
	submitEnough  = 24
	submitWorkers = 2
	// One begins in any case beside one that takes this long.
	submitPatience = 250 * time.Millisecond
)

// Request is one task to submit.
type Request struct {
	ID             string // a UUIDv7 that no task has; empty: a new one. A received file of that name is the task's until it has ended
	Type           string
	Payload        json.RawMessage // JSON, at most 256 KiB; may be nil
	IdempotencyKey string          // unique for its user; empty: none
	Hash           string          // sha256 (hex) of what was sent with the key
	WorkflowID     string
	ChatID         string
	MaxAttempts    int // 0: Config.MaxAttempts
}

// Submitted is the answer to a Request.
type Submitted struct {
	Task     taskstate.Task
	Replayed bool // the same key and content: Task is the first request's
	Waits    bool // the queue is away: the task's delivery is added once it is back
}

// submission is one request on its way through a batch.
type submission struct {
	c     Caller
	r     Request
	id    string
	races int
	got   Submitted
	err   error
}

// Submit makes a task for each request: a result or an error for each. Requests that come while a transaction runs share
// the next one. Errors: ErrUnknownType, ErrKeyReused, ErrBacklogFull, taskstate.ErrUnavailable, taskstate.ErrOutcomeUnknown.
func (s *Service) Submit(ctx context.Context, c Caller, requests ...Request) ([]Submitted, []error) {
	out, errs := make([]Submitted, len(requests)), make([]error, len(requests))
	var items []*submission
	var places []int
	for i, r := range requests {
		if _, known := s.d.Types[r.Type]; !known {
			errs[i] = fmt.Errorf("%w: %s", ErrUnknownType, r.Type)
			continue
		}
		items, places = append(items, &submission{c: c, r: r, id: cmp.Or(r.ID, NewID())}), append(places, i)
	}
	for n, err := range s.submits.Do(ctx, items...) {
		if err == nil {
			err = items[n].err // only now: a batch that its caller left may still be at work on it
		}
		if errs[places[n]] = err; err == nil {
			out[places[n]] = items[n].got
		}
	}
	return out, errs
}

// NewID is a UUIDv7 text; reading random numbers does not fail on the systems that we run on.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// Splits reports whether a batch that failed so is worth trying one by one: one of them has the fault, not the database.
func Splits(err error) bool {
	return !errors.Is(err, taskstate.ErrUnavailable) && !errors.Is(err, taskstate.ErrOutcomeUnknown) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// submitBatch submits the requests of a batch in one transaction, then adds all their deliveries at once.
func (s *Service) submitBatch(ctx context.Context, b *batcher.Batch[*submission]) error {
	items := b.Items()
	made, err := s.Insert(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock, full error) ([]taskstate.NewTask, error) {
		return s.prepare(ctx, tx, items, full)
	})
	if errors.Is(err, taskstate.ErrDuplicateKey) && len(items) == 1 && items[0].races < submitTries {
		items[0].races++
		b.Requeue(0) // somebody else used the key first: looked at again it is there
		return nil
	}
	if err != nil {
		return err
	}
	byID := make(map[string]taskstate.Task, len(made))
	for _, t := range made {
		byID[t.ID] = t
	}
	var replayed []*submission
	for i, x := range items {
		if t, fresh := byID[x.id]; fresh {
			x.got = Submitted{Task: t}
		} else if x.got.Replayed {
			replayed = append(replayed, x)
		} else if x.err == nil {
			b.Requeue(i) // another of this batch used the same key
		}
	}
	b.Release() // what was put back belongs to the next transaction from here on
	if s.Announce(ctx, made) {
		for _, x := range items {
			x.got.Waits = x.got.Task.ID == x.id
		}
	}
	s.readReplayed(ctx, replayed)
	return nil
}

// prepare finds the tasks of earlier requests and makes the others.
func (s *Service) prepare(ctx context.Context, tx taskstate.Tx, items []*submission, full error) ([]taskstate.NewTask, error) {
	keys := map[UserKey]bool{}
	for _, x := range items {
		x.err, x.got = nil, Submitted{}
		if x.r.IdempotencyKey != "" {
			keys[x.key()] = true
		}
	}
	earlier, err := s.Earlier(ctx, tx, keys)
	if err != nil {
		return nil, err
	}
	var out []taskstate.NewTask
	for _, x := range items {
		before, found := earlier[x.key()]
		switch {
		case found && before.RequestHash != x.r.Hash:
			x.err = ErrKeyReused
		case found:
			x.got = Submitted{Task: before, Replayed: true}
		case full != nil:
			x.err = full
		case x.r.IdempotencyKey != "" && !keys[x.key()]: // taken by one before it: it waits for the next transaction
		default:
			delete(keys, x.key())
			out = append(out, x.task(s.cfg.MaxAttempts))
		}
	}
	return out, nil
}

// readReplayed reads the whole rows of the tasks that earlier requests have made.
func (s *Service) readReplayed(ctx context.Context, replayed []*submission) {
	byID := map[string][]*submission{}
	for _, x := range replayed {
		byID[x.got.Task.ID] = append(byID[x.got.Task.ID], x)
	}
	if len(byID) == 0 {
		return
	}
	rows, err := s.d.Store.GetMany(ctx, taskstate.System(), slices.Collect(maps.Keys(byID)))
	for _, t := range rows {
		for _, x := range byID[t.ID] {
			x.got.Task = t
		}
		delete(byID, t.ID)
	}
	for id, missing := range byID {
		for _, x := range missing {
			x.err = cmp.Or(err, fmt.Errorf("task %s: %w", id, taskstate.ErrNotFound))
		}
	}
}

func (x *submission) key() UserKey { return UserKey{x.c.Scope.UserID, x.r.IdempotencyKey} }

// task is the row to insert.
func (x *submission) task(attempts int) taskstate.NewTask {
	t := taskstate.Task{
		ID: x.id, UserID: x.c.Scope.UserID, Type: x.r.Type, Channel: x.c.Channel, Payload: x.r.Payload, WorkflowID: x.r.WorkflowID,
		ChatID: x.r.ChatID, TraceParent: x.c.TraceParent, RequestID: x.c.RequestID, MaxAttempts: cmp.Or(x.r.MaxAttempts, attempts),
	}
	if x.r.IdempotencyKey != "" {
		t.IdempotencyKey, t.RequestHash = x.r.IdempotencyKey, x.r.Hash
	}
	return taskstate.NewTask{Task: t, Actor: x.c.Scope.Actor()}
}

// Insert runs prepare and inserts the tasks that it returns, in one transaction; Announce must follow. full says why no new
// task may be made (ErrBacklogFull): replays of earlier requests are answered all the same.
func (s *Service) Insert(ctx context.Context,
	prepare func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, full error) ([]taskstate.NewTask, error),
) ([]taskstate.Task, error) {
	full, err := s.backlog.full(ctx, s)
	if err != nil {
		return nil, err
	}
	made, err := s.d.Store.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		return prepare(ctx, tx, m, full)
	})
	s.backlog.add(len(made))
	return made, err
}

// UserKey is an idempotency key of a user.
type UserKey struct{ User, Key string }

// Earlier reads the tasks that were made with idempotency keys: ids, hashes, document, base and file.
func (s *Service) Earlier(ctx context.Context, tx taskstate.Tx, keys map[UserKey]bool) (map[UserKey]taskstate.Task, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	pairs := map[sqldb.Pair]bool{}
	for k := range keys {
		pairs[sqldb.Pair{k.User, k.Key}] = true
	}
	params := sqldb.PairArgs(pairs)
	found := map[UserKey]taskstate.Task{}
	err := sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
		var t taskstate.Task
		err := rows.Scan(&t.ID, &t.UserID, &t.IdempotencyKey, &t.RequestHash, &t.DocumentID, &t.KnowledgeBase, &t.FilePath)
		t.DocumentID, t.KnowledgeBase = strings.TrimSpace(t.DocumentID), strings.TrimSpace(t.KnowledgeBase)
		found[UserKey{t.UserID, t.IdempotencyKey}] = t
		return err
	}, s.q.Any("TasksByKey", len(params)/2), params...)
	if err != nil {
		return nil, fmt.Errorf("look for the keys' tasks: %w", err)
	}
	return found, nil
}
