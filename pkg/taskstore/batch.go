package taskstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/call"
)

// lockFunc locks the rows of a batch and returns them in id order (Sweep: in wake order) with the database's moment.
type lockFunc func(ctx context.Context, tx taskstate.Tx) (taskstate.DBClock, []taskstate.Task, error)

// batch is one transaction of Apply or Sweep. Its results are those of the attempt that counted.
type batch struct {
	store        *Store
	lock         lockFunc
	decide       taskstate.DecideFunc
	onTransition taskstate.TransitionFunc
	callID       []byte

	held      bool                 // tasks are their holder's copies: no row is locked yet
	tasks     []taskstate.Task     // locked
	decisions []taskstate.Decision // one for each task, in its order
	changed   []int                // indexes of tasks that get a change
	written   written              // at the instant of the UPDATE; zero until that is known
	leased    leased               // whose lease the claims are part of
	events    int                  // messages that the outbox wrote
}

// run does the work with its retries.
func (b *batch) run(ctx context.Context, name string, rows int, what string) error {
	b.callID = newCallID()
	err := b.store.withLease(ctx, func() error {
		return b.store.Run(ctx, sqldb.Call{Name: name, Batch: rows, What: what, Work: b.work, Resolve: b.resolve})
	})
	if err == nil {
		b.store.rang(b.events)
	}
	return err
}

// work is the inside of the transaction.
func (b *batch) work(ctx context.Context, tx taskstate.Tx) (bool, error) {
	b.tasks, b.decisions, b.changed, b.written, b.leased, b.events = nil, nil, nil, written{}, leased{}, 0
	asked := time.Now()
	m, tasks, err := b.lock(ctx, tx)
	waited := time.Since(asked)
	if err != nil || len(tasks) == 0 {
		return false, err
	}
	b.tasks = tasks
	decisions, err := b.decide(ctx, tx, m, tasks)
	if err != nil {
		return false, err
	}
	if err := b.take(decisions); err != nil || len(b.changed) == 0 {
		return false, err
	}
	if !b.store.sqlite() && waited < b.store.fresh {
		b.written.at = b.instant(m.Now)
	}
	if err := b.update(ctx, tx, m); err != nil {
		return false, err
	}
	if b.held && time.Since(asked) >= staleTime {
		return false, fmt.Errorf("the rows were waited for: %w", sqldb.ErrConflict)
	}
	if b.onTransition != nil {
		if err := sqldb.Flush(ctx, tx); err != nil {
			return false, fmt.Errorf("update tasks: %w", err)
		}
		if err := b.onTransition(ctx, tx, m, b.applied()); err != nil {
			return false, &alsoError{err}
		}
	}
	if err := b.log(ctx, tx, m); err != nil {
		return false, err
	}
	if err := b.deliver(ctx, tx, m); err != nil {
		return false, err
	}
	return true, b.failures(ctx, tx)
}

// take fits the decisions to the tasks; one that is missing keeps its row.
func (b *batch) take(decisions []taskstate.Decision) error {
	at := map[string]int{}
	for i, d := range decisions {
		at[d.TaskID] = i
	}
	b.decisions = make([]taskstate.Decision, len(b.tasks))
	b.changed = make([]int, 0, len(b.tasks))
	for i := range b.tasks {
		t, d := &b.tasks[i], taskstate.Decision{TaskID: b.tasks[i].ID, Answer: taskstate.AnswerKept}
		if n, ok := at[t.ID]; ok {
			d = decisions[n]
		}
		if d.Change != nil {
			if err := check(t, d.Change); err != nil {
				return err
			}
			d.Change = cleaned(d.Change)
			b.changed = append(b.changed, i)
		}
		b.decisions[i] = d
	}
	return nil
}

// check refuses a change that is not one of this row or not on the legal graph: a programmer's mistake.
func check(t *taskstate.Task, c *taskstate.Change) error {
	switch {
	case c.TaskID != t.ID || c.From != t.Status || c.Fence != t.Fence:
		return fmt.Errorf("task %s: %w: the change is of another state of the row", t.ID, ErrInvalid)
	case c.Silent && c.To != c.From:
		return fmt.Errorf("task %s: %w: a change of status cannot be silent", t.ID, ErrInvalid)
	case !c.Silent && !taskstate.Legal(c.From, c.To, c.Reason):
		return fmt.Errorf("task %s: %w: %s to %s for %s is not a legal change", t.ID, ErrInvalid, c.From, c.To, c.Reason)
	}
	return nil
}

// cleaned is c with texts that every dialect can keep: valid UTF-8 without NUL, of bounded length;
// c itself where it is that.
func cleaned(c *taskstate.Change) *taskstate.Change {
	kept := func(text string) string { return taskstate.Shorten(clean(text), taskstate.MaxErrorChars) }
	long := [3]string{kept(c.LastError), kept(c.ErrorMessage), kept(c.Message)}
	code, name := clean(c.ErrorCode), clean(c.Actor.Name)
	if long == [3]string{c.LastError, c.ErrorMessage, c.Message} && code == c.ErrorCode && name == c.Actor.Name && c.Progress.Stage != "" && c.DLQ != "" {
		return c
	}
	made := *c
	made.LastError, made.ErrorMessage, made.Message, made.ErrorCode, made.Actor.Name = long[0], long[1], long[2], code, name
	made.Progress.Stage = cmp.Or(c.Progress.Stage, taskstate.StageNone)
	made.DLQ = cmp.Or(c.DLQ, taskstate.DLQNone)
	return &made
}

// applied are the decisions with a change.
func (b *batch) applied() []taskstate.Decision {
	out := make([]taskstate.Decision, len(b.changed))
	for n, i := range b.changed {
		out[n] = b.decisions[i]
	}
	return out
}

// update writes the states of all changes with one statement and checks that each found its row, and then what some say of bodies.
func (b *batch) update(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
	changes := make([]changed, len(b.changed))
	for n, i := range b.changed {
		changes[n] = changed{before: &b.tasks[i], by: b.decisions[i].Change}
	}
	var err error
	if b.leased, err = b.store.numbered(m, changes, b.held); err != nil {
		return err
	}
	b.written.lease = b.leased.until
	slices.SortFunc(changes, func(a, b changed) int { return strings.Compare(a.by.TaskID, b.by.TaskID) })
	state := sqldb.Write{Part: b.store.updateState(changes, b.written.at, m.Epoch, b.held), Rows: len(changes)}
	if b.held {
		state.Until = m.Now.Add(staleTime)
	}
	if err := state.Exec(ctx, tx); err != nil {
		return fmt.Errorf("update tasks: %w", err)
	}
	say := slices.DeleteFunc(changes, func(c changed) bool { return !b.store.says(c) })
	if len(say) == 0 {
		return nil
	}
	for _, part := range bySize(say, changed.size) {
		if err := (sqldb.Write{Part: b.store.updateBody(part), Rows: len(part)}).Exec(ctx, tx); err != nil {
			return fmt.Errorf("update bodies of tasks: %w", err)
		}
	}
	return nil
}

// log reads the instant of the UPDATE where it is not known, and writes the transitions.
func (b *batch) log(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
	if b.written.at.IsZero() {
		var err error
		if b.written.at, err = b.store.writtenAt(ctx, tx, b.tasks[b.changed[0]].ID); err != nil {
			return err
		}
	}
	if err := b.leased.enough(b.written.at); err != nil { // the process stood still, or the rows were waited for
		return err
	}
	log := make([]call.Row, 0, len(b.changed))
	for _, i := range b.changed {
		log = append(log, logOf(&b.tasks[i], b.decisions[i].Change, b.written))
	}
	return b.store.calls().Insert(ctx, tx, log, call.Head{ID: b.callID, Epoch: m.Epoch, At: b.written.at})
}

// logOf is the row of a change that was written.
func logOf(before *task, c *change, w written) call.Row {
	r := call.Row{
		ID: c.TaskID, Whose: whoseIs(before), From: c.From, To: c.To, Reason: c.Reason, Actor: c.Actor.String(), Message: c.Message,
		Attempts: c.AttemptCount, Crashes: c.CrashCount, Fence: c.NewFence, Retry: w.time(c.NextRetry, before.NextRetryAt), Code: c.ErrorCode,
		Wake: w.time(c.Wake, before.WakeAt),
	}
	if c.Silent {
		r.Reason = call.Silent
	}
	if c.To == taskstate.StatusRunning {
		r.Lease, r.Delivery = r.Wake, c.Delivery
	}
	return r
}

// freshTime is how long the locks may have been waited for while the time of the statement that took them is still now.
const freshTime = 50 * time.Millisecond

// staleTime is how long an UPDATE of rows that were not locked may take, with its waits, while the time that it wrote is still
// now: well below the slack of promises (design D5), and well above what 500 rows take on a busy machine.
const staleTime = time.Second

// instant is the time of the locking statement, to be the time of all that the transaction writes: so none has to be read back.
// Zero when it would not be later than what a row says, since another call had that row's lock after the statement began.
func (b *batch) instant(now time.Time) time.Time {
	for _, i := range b.changed {
		if !b.tasks[i].UpdatedAt.Before(now) {
			return time.Time{}
		}
	}
	return now
}

// writtenAt reads the instant at which this transaction wrote a row; it is the same for all its rows.
func (s *Store) writtenAt(ctx context.Context, tx taskstate.Tx, id string) (time.Time, error) {
	var at taskstate.DBTime
	if err := tx.QueryRowContext(ctx, s.queries.Get("Written"), id).Scan(&at); err != nil {
		return time.Time{}, fmt.Errorf("read the time of the update: %w", err)
	}
	return at.Time, nil
}

// resolve finds out whether the last attempt's COMMIT was done.
func (b *batch) resolve(ctx context.Context, tx taskstate.Tx) (bool, error) {
	var ids []string
	silent := true
	for _, i := range b.changed {
		ids = append(ids, b.tasks[i].ID)
		silent = silent && b.decisions[i].Change.Silent
	}
	// The locks wait for the end of the transaction before.
	_, now, err := b.store.lockIDs(ctx, tx, ids, taskstate.System())
	if err != nil {
		return false, err
	}
	if silent {
		return b.silentDone(now), nil
	}
	var at taskstate.DBTime
	query := b.store.queries.Bind("CallOf", sqldb.Parts{"list": sqldb.List(b.store.rawIDs(ids))}, b.callID)
	err = tx.QueryRowContext(ctx, query.Text, query.Args...).Scan(&at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	b.written.at = at.Time
	return true, nil
}

// silentDone compares rows with what changes without a log should have made of them. A row that says so is enough,
// since they commit together; when all have moved on, the call is decided anew, which the decisions allow.
func (b *batch) silentDone(now []taskstate.Task) bool {
	byID := make(map[string]taskstate.Task, len(now))
	for _, t := range now {
		byID[t.ID] = t
	}
	for _, i := range b.changed {
		t, ok := byID[b.tasks[i].ID]
		if !ok || !t.UpdatedAt.After(b.tasks[i].UpdatedAt) {
			continue
		}
		want := b.tasks[i]
		apply(b.store.columns, &want, b.decisions[i].Change, written{t.UpdatedAt, t.WakeAt})
		if t.Status == want.Status && t.Fence == want.Fence && t.LeaseOwner == want.LeaseOwner && t.DLQ == want.DLQ &&
			t.EnqueueCount == want.EnqueueCount && t.WakeAt.Equal(want.WakeAt) && t.EnqueuedAt.Equal(want.EnqueuedAt) {
			b.written.at = t.UpdatedAt
			return true
		}
	}
	return false
}

// outcomes are the results by task, in the order of the locked tasks.
func (b *batch) outcomes() []taskstate.Outcome {
	out := make([]taskstate.Outcome, len(b.tasks))
	for i := range b.tasks {
		o := &out[i]
		o.Decision, o.Before, o.After = b.decisions[i], b.tasks[i], b.after(i)
	}
	return out
}

// after is a task as the batch leaves it.
func (b *batch) after(i int) taskstate.Task {
	t := b.tasks[i]
	if c := b.decisions[i].Change; c != nil {
		apply(b.store.columns, &t, c, b.written)
	}
	return t
}

// alsoError marks what a hook returned, so that the batch is tried singly.
type alsoError struct{ cause error }

func (e *alsoError) Error() string { return e.cause.Error() }
func (e *alsoError) Unwrap() error { return e.cause }

// splits reports whether a failed batch is worth trying row by row: one row's data, or a hook, refused.
func (s *Store) splits(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, taskstate.ErrUnavailable) || errors.Is(err, taskstate.ErrOutcomeUnknown) {
		return false
	}
	var also *alsoError
	if errors.As(err, &also) || errors.Is(err, ErrInvalid) {
		return true
	}
	class := s.ClassOf(err)
	return s.Known(err) && (class == sqldb.Other || class == sqldb.Unique)
}
