package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// keepEffects bounds what waits for a queue that does not answer. Beyond it effects are dropped: reconciling, the sweep for
// lost deliveries and the owed dead letters do the same work later.
const keepEffects = 20_000

// adopted is the row's own entry that a retry or takeover wants.
type adopted struct {
	h        *local.Claim
	delivery string
}

// DeadLetter is an entry of the dead letter queue with what follows it.
type DeadLetter struct {
	Entry    ingestq.DeadLetter
	Token    taskstate.Token
	delivery string // acknowledged after the entry was written; empty: none
}

// deadLetterOf is the dead letter of a DEAD row.
func deadLetterOf(t taskstate.Task, epoch int64, delivery string) DeadLetter {
	return DeadLetter{
		Entry: ingestq.DeadLetter{
			TaskID: t.ID, Fence: t.Fence, SourceRecordID: t.Delivery,
			LastError: t.LastError, AttemptCount: t.AttemptCount, FailedAt: t.UpdatedAt,
		},
		Token: taskstate.Token{Epoch: epoch, Fence: t.Fence}, delivery: delivery,
	}
}

// effectList are effects on the queue that follow commits.
type effectList struct {
	adopts      []adopted
	deadLetters []DeadLetter
	copies      []ingestq.Copy
	renews      []ingestq.Delivery
	publishes   []*pb.TaskEnvelope
	acks        []string
	marks       []DeadLetter
}

// size counts them.
func (e *effectList) size() int {
	return len(e.adopts) + len(e.deadLetters) + len(e.copies) + len(e.renews) + len(e.publishes) + len(e.acks) + len(e.marks)
}

// Effects carries out the post-commit queue effects of all transactions in few round trips, so that a queue that does not
// answer claims up no transaction.
type Effects struct {
	Parts
	policy  taskstate.Policy
	pending ingestq.PendingQueue // nil: the group commits offsets

	mu     sync.Mutex
	todo   effectList
	bundle int // calls of together under way
	wake   chan struct{}
	turn   sync.Mutex // one round at a time: adoption comes before the acknowledgement of the same entry
}

func newEffects(cfg Config, parts Parts) *Effects {
	e := &Effects{Parts: parts, policy: cfg.Policy, wake: make(chan struct{}, 1)}
	e.pending, _ = parts.Queue.(ingestq.PendingQueue)
	if e.DeadLetters == nil && e.pending != nil {
		e.DeadLetters = e.pending
	}
	return e
}

// add adds effects, unless too many wait.
func (c *Effects) add(f func(e *effectList)) {
	c.mu.Lock()
	if c.todo.size() < keepEffects {
		f(&c.todo)
	}
	ring := c.bundle == 0
	c.mu.Unlock()
	if ring {
		c.ring()
	}
}

// Together lets what f adds wait for its end: a round that began with the first errand would take few of the others along.
func (c *Effects) Together(f func()) {
	c.mu.Lock()
	c.bundle++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.bundle--
		c.mu.Unlock()
		c.ring()
	}()
	f()
}

// ring wakes the loop.
func (c *Effects) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Ack acknowledges a delivery; "" is none.
func (c *Effects) Ack(id string) {
	if id != "" {
		c.add(func(e *effectList) { e.acks = append(e.acks, id) })
	}
}

// Adopt takes over the row's own entry.
func (c *Effects) Adopt(h *local.Claim) {
	if h.Delivery != "" {
		c.add(func(e *effectList) { e.adopts = append(e.adopts, adopted{h, h.Delivery}) })
	}
}

// bury writes a dead letter, then acknowledges, then marks the row.
func (c *Effects) writeDeadLetter(l DeadLetter) {
	c.add(func(e *effectList) { e.deadLetters = append(e.deadLetters, l) })
}

// Died does what follows a DEAD that was just committed, or found owed: entry, acknowledgement, mark (design D11).
func (c *Effects) Died(t taskstate.Task, epoch int64, delivery string) {
	if t.DLQ != taskstate.DLQOwed || !c.policy.DLQ {
		c.Ack(delivery)
		return
	}
	c.writeDeadLetter(deadLetterOf(t, epoch, delivery))
}

// writeDeadLettersNow is bury for a sweep, which waits: an error leaves the debts as they are.
func (c *Effects) writeDeadLettersNow(ctx context.Context, ls []DeadLetter) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	written := c.writeDeadLetters(ctx, ls)
	if len(written) == 0 {
		return fmt.Errorf("write %d owed dead letters: %w", len(ls), ingestq.ErrUnavailable)
	}
	var ids []string
	for _, l := range written {
		if l.delivery != "" {
			ids = append(ids, l.delivery)
		}
	}
	c.acks(ctx, ids) // what fails is settled later
	if len(c.Marks(ctx, written)) > 0 {
		return fmt.Errorf("mark %d owed dead letters: %w", len(ls), taskstate.ErrUnavailable)
	}
	return nil
}

// requeue replaces a delivery by a copy.
func (c *Effects) requeue(cp ingestq.Copy) {
	c.add(func(e *effectList) { e.copies = append(e.copies, cp) })
}

// renew enqueues the row of a record anew, and then acknowledges that.
func (c *Effects) renew(d ingestq.Delivery) {
	c.add(func(e *effectList) { e.renews = append(e.renews, d) })
}

// publish adds a delivery.
func (c *Effects) publish(t taskstate.Task) {
	c.add(func(e *effectList) { e.publishes = append(e.publishes, ingestq.DeliveryOf(t)) })
}

// Loop does effects as they come, until ctx ends.
func (c *Effects) Loop(ctx context.Context) {
	var wait local.Backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		if c.Round(ctx) {
			wait.Reset()
			continue
		}
		if !pause.For(ctx, wait.After()) {
			return
		}
		c.add(func(*effectList) {}) // try again what was kept
	}
}

// Flush does what waits now, once more than once if there is time, at the end of the process.
func (c *Effects) Flush(ctx context.Context) {
	var wait local.Backoff
	for !c.Round(ctx) && pause.For(ctx, wait.After()) {
	}
}

// Round does all effects that wait; it reports whether none was kept for another try.
func (c *Effects) Round(ctx context.Context) bool {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	e := c.todo
	c.todo = effectList{}
	c.mu.Unlock()
	if e.size() == 0 {
		return true
	}
	var kept effectList
	c.adopts(ctx, e.adopts)
	written := c.writeDeadLetters(ctx, e.deadLetters)
	for _, l := range written {
		if l.delivery != "" {
			e.acks = append(e.acks, l.delivery)
		}
	}
	kept.copies = c.copies(ctx, e.copies)
	again, renewed := c.renews(ctx, e.renews)
	kept.renews = again
	e.acks = append(e.acks, renewed...)
	c.publishes(ctx, e.publishes)
	kept.acks = c.acks(ctx, e.acks)
	kept.marks = c.Marks(ctx, append(e.marks, written...))
	if kept.size() == 0 {
		return true
	}
	c.add(func(todo *effectList) {
		todo.copies = append(todo.copies, kept.copies...)
		todo.renews = append(todo.renews, kept.renews...)
		todo.acks = append(todo.acks, kept.acks...)
		todo.marks = append(todo.marks, kept.marks...)
	})
	return false
}

// ask calls the queue once, with a limit, and notes how it went.
func (c *Effects) ask(ctx context.Context, what string, n int, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, local.CallLimit)
	defer cancel()
	began := c.Store.Now()
	err := f(ctx)
	c.Store.Health.QueueCall(began, err)
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
		c.Store.Health.Warn(ctx, "runner: queue", err, slog.String("what", what), slog.Int("entries", n))
	}
	return err
}

// adopts takes over the entries that rows name (the queue counts what it finds). One that is not found changes nothing: the entry is a hint (design D4).
func (c *Effects) adopts(ctx context.Context, as []adopted) {
	if len(as) == 0 {
		return
	}
	ids := make([]string, len(as))
	for i, a := range as {
		ids[i] = a.delivery
	}
	var found map[string]bool
	err := c.ask(ctx, "adopt", len(ids), func(ctx context.Context) (err error) {
		found, err = c.pending.Adopt(ctx, ids...)
		return errors.Join(err, crash.Fault("worker.after_adopt"))
	})
	if err != nil {
		return
	}
	for _, a := range as {
		if !found[a.delivery] {
			a.h.EntryGone.Store(true)
		}
	}
}

// writeDeadLetters writes dead letters and answers those that were written. The others stay owed in their rows: a sweep writes them.
func (c *Effects) writeDeadLetters(ctx context.Context, ls []DeadLetter) []DeadLetter {
	if len(ls) == 0 {
		return nil
	}
	entries := make([]ingestq.DeadLetter, len(ls))
	for i, l := range ls {
		entries[i] = l.Entry
	}
	err := c.ask(ctx, "write dead letters", len(ls), func(ctx context.Context) error {
		return errors.Join(c.DeadLetters.DeadLetters(ctx, entries), crash.Fault("worker.after_dlq_add"))
	})
	if err != nil {
		return nil
	}
	return ls
}

// copies hands entries back; it answers those to try again.
func (c *Effects) copies(ctx context.Context, cs []ingestq.Copy) []ingestq.Copy {
	if len(cs) == 0 {
		return nil
	}
	err := c.ask(ctx, "hand back", len(cs), func(ctx context.Context) error {
		es := make([]*pb.TaskEnvelope, len(cs))
		for i := range cs {
			es[i] = cs[i].Envelope
		}
		return traced(ctx, c.Tracer, c.pending, es, func(ctx context.Context) ([]string, error) {
			_, err := c.pending.Requeue(ctx, cs)
			return nil, errors.Join(err, crash.Fault("handback.after_copy"))
		})
	})
	if err != nil {
		return cs // the script copies only what is still pending: a second try makes no second copy
	}
	return nil
}

// publishes adds deliveries; what fails is promised in its row.
func (c *Effects) publishes(ctx context.Context, es []*pb.TaskEnvelope) {
	if len(es) == 0 {
		return
	}
	_ = c.ask(ctx, "publish", len(es), func(ctx context.Context) error {
		return traced(ctx, c.Tracer, c.pending, es, func(ctx context.Context) ([]string, error) {
			ids, err := c.pending.Publish(ctx, es)
			return ids, errors.Join(err, crash.Fault("handback.after_publish"))
		})
	})
}

// acks acknowledges everything at once; it answers what to try again.
func (c *Effects) acks(ctx context.Context, ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	err := c.ask(ctx, "acknowledge", len(ids), func(ctx context.Context) error {
		if err := crash.Fault("worker.before_ack"); err != nil {
			return err
		}
		return errors.Join(c.Queue.Ack(ctx, ids...), crash.Fault("worker.after_ack"))
	})
	if err != nil {
		return ids
	}
	return nil
}

// Marks notes in the rows that their dead letters were written; it answers those to try again.
func (c *Effects) Marks(ctx context.Context, ls []DeadLetter) []DeadLetter {
	if len(ls) == 0 {
		return nil
	}
	tokens := make(map[string]taskstate.Token, len(ls))
	var ids []string
	for _, l := range ls {
		if _, known := tokens[l.Entry.TaskID]; !known {
			ids = append(ids, l.Entry.TaskID)
		}
		tokens[l.Entry.TaskID] = l.Token // of two deaths only the last can still be marked
	}
	ctx, cancel := context.WithTimeout(ctx, local.CallLimit)
	defer cancel()
	_, err := c.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.MarkDLQ(m, t, tokens[t.ID])
		}),
	})
	if err != nil {
		c.Store.Health.Warn(ctx, "runner: mark dead letters", err, slog.Int("tasks", len(ids)))
		return ls
	}
	crash.Point("worker.after_dlq_mark")
	return nil
}

// renews enqueues rows anew whose records this process read and cannot claim, and then acknowledges those; it answers what to
// try again. A row that is not QUEUED any more, or fails alone, needs none of them.
func (c *Effects) renews(ctx context.Context, ds []ingestq.Delivery) (again []ingestq.Delivery, done []string) {
	if len(ds) == 0 {
		return nil, nil
	}
	var ids []string
	for _, d := range ds {
		if id := d.Envelope.GetTaskId(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, local.CallLimit)
	defer cancel()
	if _, err := renewEnqueues(ctx, c.Store, c.policy, ids); err != nil {
		c.Store.Health.Warn(ctx, "runner: enqueue records anew", err, slog.Int("tasks", len(ids)))
		return ds, nil
	}
	for _, d := range ds {
		done = append(done, d.ID)
	}
	return nil, done
}

// Quarantine puts an undecodable delivery away as it came. If that fails it stays pending and reconciling tries again.
func (c *Effects) Quarantine(ctx context.Context, d ingestq.Delivery) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	began := c.Store.Now()
	err := errors.Join(c.Queue.Quarantine(ctx, d), crash.Fault("worker.after_quarantine"))
	c.Store.Health.QueueCall(began, err)
	if err != nil {
		c.Store.Health.Warn(ctx, "runner: put an undecodable delivery away", err, slog.String("delivery", d.ID))
		return
	}
	c.Store.Health.Warn(ctx, "runner: put an undecodable delivery away", d.Err, slog.String("delivery", d.ID))
}
