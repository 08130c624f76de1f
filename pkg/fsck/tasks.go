package fsck

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A row and its log that differ are read again so often: somebody moved the task between the two reads.
const readAgain = 20

// life is what the rules need of one task's log besides its Trail.
type life struct {
	claims map[int64]claim // by fence
	deaths map[int64]bool  // by fence
	first  string          // actor of the acceptance
	log    []taskstate.Transition
}

// claim is one hold of a task.
type claim struct {
	began, ended time.Time // ended is zero while it holds
	how          taskstate.Reason
	delivery     string
}

// scanTask reads the columns of Tasks.
func scanTask(rows *sql.Rows) (t taskstate.Task, err error) {
	var retry, wake, enqueued, created, updated taskstate.DBTime
	err = rows.Scan(&t.ID, &t.UserID, &t.DocumentID, &t.Type, &t.Channel, &t.Status, &t.AttemptCount, &t.MaxAttempts, &t.CrashCount, &t.Fence,
		&retry, &t.LastError, &t.ErrorMessage, &t.LeaseOwner, &wake, &enqueued,
		&t.EnqueueCount, &t.DLQ, &t.Delivery, &t.IdempotencyKey, &t.RequestHash, &created, &updated)
	t.LeaseOwner, t.Delivery = strings.TrimSpace(t.LeaseOwner), strings.TrimSpace(t.Delivery)
	t.NextRetryAt, t.WakeAt, t.EnqueuedAt = retry.Time, wake.Time, enqueued.Time
	t.CreatedAt, t.UpdatedAt = created.Time, updated.Time
	return t, err
}

// scanTransition reads the columns of Logs.
func scanTransition(rows *sql.Rows) (tr taskstate.Transition, err error) {
	var lease, retry, created taskstate.DBTime
	err = rows.Scan(&tr.ID, &tr.TaskID, &tr.From, &tr.To, &tr.Reason, &tr.AttemptCount, &tr.CrashCount, &tr.Fence, &tr.Epoch,
		&tr.Actor, &tr.Message, &lease, &retry, &tr.Delivery, &created)
	tr.LeaseExpiresAt, tr.NextRetryAt, tr.CreatedAt = lease.Time, retry.Time, created.Time
	return tr, err
}

// tasksByID reads rows by their ids.
func (c *checker) tasksByID(ctx context.Context, ids ...string) ([]taskstate.Task, error) {
	return sqldb.Collect(ctx, c.db, scanTask, c.q.List("TasksByID", len(ids)), sqldb.Args(ids)...)
}

// readLog gives the transitions that a statement finds to f.
func (c *checker) readLog(ctx context.Context, f func(tr taskstate.Transition), name string, args ...any) error {
	return c.each(ctx, func(rows *sql.Rows) error {
		tr, err := scanTransition(rows)
		if err == nil {
			f(tr)
		}
		return err
	}, c.q.Get(name), args...)
}

// readTasks streams all tasks with their logs, page by page.
func (c *checker) readTasks(ctx context.Context) error {
	var err error
	if c.wakes, err = c.readWakes(ctx); err != nil {
		return err
	}
	if err := pages(ctx, c, "Tasks", scanTask, func(t taskstate.Task) string { return t.ID }, c.judgePage); err != nil {
		return err
	}
	return c.judgeAsleep(ctx)
}

// readWakes reads the calls that wake.
func (c *checker) readWakes(ctx context.Context) (map[waking]time.Time, error) {
	out := map[waking]time.Time{}
	return out, c.each(ctx, func(rows *sql.Rows) error {
		var status taskstate.Status
		var at taskstate.DBTime
		var ids sql.RawBytes
		if err := rows.Scan(&status, &at, &ids); err != nil {
			return err
		}
		for raw := range slices.Chunk(ids, len(uuid.UUID{})) {
			id, err := uuid.FromBytes(raw)
			if err != nil {
				return fmt.Errorf("the ids of a call: %w", err)
			}
			w := waking{id.String(), status}
			if first, known := out[w]; !known || at.Before(first) {
				out[w] = at.Time
			}
		}
		return nil
	}, c.q.Get("Wakes"))
}

// named reports whether a call names a task that wakes, and in time.
func named(wakes map[waking]time.Time, t taskstate.Task) bool {
	first, known := wakes[waking{t.ID, t.Status}]
	return t.WakeAt.IsZero() || known && !first.After(t.WakeAt)
}

// judgeAsleep judges those that no call seemed to name: a row, then the calls, then the row again, until nobody moved it between.
func (c *checker) judgeAsleep(ctx context.Context) error {
	for page := range slices.Chunk(c.asleep, pageSize) {
		ids := make([]string, len(page))
		for i, t := range page {
			ids[i] = t.ID
		}
		for try := 0; len(ids) > 0 && try < readAgain; try++ {
			before, err := c.tasksByID(ctx, ids...)
			if err != nil {
				return err
			}
			wakes, err := c.readWakes(ctx)
			if err != nil {
				return err
			}
			after, err := c.tasksByID(ctx, ids...)
			if err != nil {
				return err
			}
			ids = nil
			for _, t := range after {
				i := slices.IndexFunc(before, func(b taskstate.Task) bool { return b.ID == t.ID })
				switch {
				case named(wakes, t):
				case i < 0 || !before[i].WakeAt.Equal(t.WakeAt) || !before[i].UpdatedAt.Equal(t.UpdatedAt):
					ids = append(ids, t.ID)
				default:
					c.bad("I38", t.ID, "it is %s, wakes at %s and no call says so", t.Status, stamp(t.WakeAt))
					keep(&c.Asleep, t.ID)
				}
			}
		}
	}
	return nil
}

// judgePage judges some tasks, which stand in the order of their ids.
func (c *checker) judgePage(ctx context.Context, page []taskstate.Task) error {
	for _, t := range page {
		if err := c.judgeRow(ctx, t); err != nil {
			return err
		}
	}
	if c.log == nil {
		return nil
	}
	rows := map[string]taskstate.Task{}
	for _, t := range page {
		rows[t.ID] = t
	}
	lives, order := map[string]*life{}, []string(nil)
	err := c.readLog(ctx, func(tr taskstate.Transition) {
		if lives[tr.TaskID] == nil {
			lives[tr.TaskID] = newLife()
			order = append(order, tr.TaskID)
		}
		c.addStep(lives[tr.TaskID], tr)
	}, "Logs", page[0].ID, page[len(page)-1].ID)
	if err != nil {
		return err
	}
	for _, id := range order {
		t, found := rows[id]
		delete(rows, id)
		if err := c.endTask(ctx, id, t, found, lives[id]); err != nil {
			return err
		}
	}
	for _, t := range rows { // rows without a log
		c.log.Row(t)
	}
	return nil
}

// addStep judges one transition.
func (c *checker) addStep(l *life, tr taskstate.Transition) {
	c.log.Add(tr)
	c.judgeText("transition of task "+tr.TaskID, tr.Message)
	l.add(tr)
}

// endTask judges a task whose log has been read. Both are read on until they agree: somebody may have moved the task between.
func (c *checker) endTask(ctx context.Context, id string, t taskstate.Task, found bool, l *life) error {
	for try := 0; (!found || !c.log.Agrees(t)) && try < readAgain; try++ {
		again, err := c.tasksByID(ctx, id)
		if err != nil {
			return err
		}
		if len(again) == 0 {
			c.log.Missing(id)
			return nil
		}
		last, moved := c.log.Trail(id).ID, false
		err = c.readLog(ctx, func(tr taskstate.Transition) {
			c.addStep(l, tr)
			moved = true
		}, "LogAfter", id, last)
		if err != nil {
			return err
		}
		same := found && again[0].UpdatedAt.Equal(t.UpdatedAt) && again[0].Fence == t.Fence && again[0].Status == t.Status
		if t, found = again[0], true; same && !moved {
			break
		}
	}
	c.log.Row(t)
	c.judgeLife(t, l)
	return nil
}

// judgeRow judges what a row alone tells.
func (c *checker) judgeRow(ctx context.Context, t taskstate.Task) error {
	if c.judged("I38"); !named(c.wakes, t) {
		keep(&c.asleep, t)
	}
	if err := c.judgeDeath(ctx, t); err != nil || !c.o.History {
		return err
	}
	if !t.Status.Terminal() && t.CreatedAt.Before(c.now.Add(-c.o.Patience)) && c.e.Copies != nil {
		c.open = append(c.open, t.ID)
	}
	c.judgeText("last error of task "+t.ID, t.LastError)
	c.judgeText("error message of task "+t.ID, t.ErrorMessage)
	var byEvent transport
	if t.Status == taskstate.StatusQueued {
		var err error
		if byEvent, err = c.transportOf(ctx, t.ID); err != nil {
			return err
		}
	}
	c.judgeWaiting(t, byEvent)
	if c.o.Rest {
		want, named := c.o.Want[t.ID]
		if !named {
			want = taskstate.StatusSucceeded
		}
		rests := t.Status.Terminal() || t.Status == taskstate.StatusSuspended ||
			(t.Status == taskstate.StatusRetrying && t.NextRetryAt.After(c.now)) ||
			byEvent.dead // it says so, and waits for a broker or an operator
		c.verdict(rests, "L1", t.ID, "it is %s with attempt %d/%d, crashes %d, last error %q", t.Status, t.AttemptCount, t.MaxAttempts, t.CrashCount, t.LastError)
		if rests && c.o.Want != nil && t.Status != want {
			c.bad("L1", t.ID, "it ended in %s, not %s: attempt %d/%d, crashes %d, last error %q", t.Status, want, t.AttemptCount, t.MaxAttempts, t.CrashCount, t.LastError)
		}
	}
	c.client.row(c, t)
	return nil
}

// judgeWaiting judges what waits for the product's own loops: promises, leases, retries.
// The read watermark of Redis says nothing of a delivery that is an event, that of Kafka what design D5 says.
func (c *checker) judgeWaiting(t taskstate.Task, byEvent transport) {
	now := c.now
	switch t.Status {
	case taskstate.StatusQueued:
		if c.queue == nil || t.Reserved(now) || c.queue.NoWatermark || !c.queue.Commits && byEvent.any {
			return
		}
		if byEvent.waiting || byEvent.dead {
			c.judged("I15")
			return
		}
		enqueued := t.WakeAt // an event that was sent after it is a promise too
		if byEvent.sent.After(enqueued) {
			enqueued = byEvent.sent
		}
		watermark := now
		if !c.queue.Watermark.IsZero() && c.queue.Watermark.Before(now) {
			watermark = c.queue.Watermark
		}
		late := watermark.Sub(enqueued) - c.o.Patience
		c.verdict(late <= 0, "I15", t.ID, "it has no delivery since %s, was to be promised again at %s, and that is %s overdue", stamp(t.EnqueuedAt), stamp(enqueued), late)
		for _, at := range c.o.Flushes {
			if before := at.Add(-skew); t.EnqueuedAt.Before(before) && t.CreatedAt.Before(before) {
				c.verdict(now.Sub(at) <= c.o.Patience, "L6", t.ID, "the queue had lost all at %s, and its promise is of %s", stamp(at), stamp(t.EnqueuedAt))
			}
		}
	case taskstate.StatusRunning:
		overdue := now.Sub(t.WakeAt) - c.o.Patience
		c.verdict(overdue <= 0, "L2", t.ID, "its lease ended at %s and nobody took it over", stamp(t.WakeAt))
	case taskstate.StatusNone, taskstate.StatusRetrying, taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusSuspended, taskstate.StatusCancelled:
	}
}

// judgeLife judges a task by its whole log.
func (c *checker) judgeLife(t taskstate.Task, l *life) {
	if err := auth.CheckUserID(t.UserID); err != nil {
		c.bad("I30", t.ID, "it is of the user %q: %v", t.UserID, err)
	}
	for _, tr := range l.log {
		kind, name, _ := strings.Cut(tr.Actor, ":")
		if kind == string(taskstate.ActorUser) || kind == string(taskstate.ActorOperator) {
			c.verdict(kind == string(taskstate.ActorOperator) || name == t.UserID, "I30", t.ID, "transition %d is by %s, the task is %s's", tr.ID, tr.Actor, t.UserID)
		}
		if c.queue != nil && tr.From == taskstate.StatusQueued && tr.To == taskstate.StatusRunning {
			c.verdict(tr.Delivery != "", "I15", t.ID, "transition %d started it and names no delivery", tr.ID)
		}
	}
	for fence := range l.deaths {
		if at := (death{t.ID, fence}); c.deadLetters[at] == nil {
			c.deadLetters[at] = &deadLetterState{}
		}
	}
	c.judgeSource(t, l)
	c.judgePaid(t, l)
	c.judgeAcks(t, l)
	c.client.task(c, t, l)
	for _, at := range c.o.Flushes {
		if c.queue != nil && l.statusAt(at.Add(-skew)) == taskstate.StatusQueued && t.Status != taskstate.StatusQueued {
			c.judged("L6")
		}
	}
}

// judgeSource is I13 for tasks that no request in a client's log made.
func (c *checker) judgeSource(t taskstate.Task, l *life) {
	if c.client == nil || !c.o.WholeClient {
		return
	}
	kind, _, _ := strings.Cut(l.first, ":")
	elsewhere := (t.Channel != "" && t.Channel != "http") || kind == string(taskstate.ActorSystem)
	c.verdict(elsewhere || c.client.asked(t), "I13", t.ID, "no request in the client log asked for it, its channel is %q, its maker %s", t.Channel, l.first)
}

// newLife makes an empty one.
func newLife() *life { return &life{claims: map[int64]claim{}, deaths: map[int64]bool{}} }

// maxLife bounds the transitions of one task that are kept for the rules of this package.
const maxLife = 20_000

// add notes one transition.
func (l *life) add(tr taskstate.Transition) {
	if l.first == "" {
		l.first = tr.Actor
	}
	if tr.From == taskstate.StatusRunning {
		ended := tr.Fence
		if tr.To == taskstate.StatusRunning {
			ended--
		}
		if k, ok := l.claims[ended]; ok && k.ended.IsZero() {
			k.ended, k.how = tr.CreatedAt, tr.Reason
			l.claims[ended] = k
		}
	}
	switch tr.To {
	case taskstate.StatusRunning:
		l.claims[tr.Fence] = claim{began: tr.CreatedAt, delivery: tr.Delivery}
	case taskstate.StatusDead:
		l.deaths[tr.Fence] = true
	default:
	}
	if len(l.log) < maxLife {
		tr.Message = ""
		l.log = append(l.log, tr)
	}
}

// statusAt is the state that the log gives for an instant.
func (l *life) statusAt(at time.Time) taskstate.Status {
	s := taskstate.StatusNone
	for _, tr := range l.log {
		if tr.CreatedAt.After(at) {
			break
		}
		s = tr.To
	}
	return s
}

// stamp shows a time of a row.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("15:04:05.000000")
}
