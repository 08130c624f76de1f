package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	adopts      []*local.Claim // whose rows name entries
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
	cfg     Config
	pending ingestq.PendingQueue // nil: the group commits offsets

	mu     sync.Mutex
	todo   effectList
	bundle int // calls of together under way
	wake   chan struct{}
	turn   sync.Mutex // one round at a time: adoption comes before the acknowledgement of the same entry
}

func newEffects(cfg Config, parts Parts) *Effects {
	e := &Effects{Parts: parts, cfg: cfg, wake: make(chan struct{}, 1)}
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
		c.add(func(e *effectList) { e.adopts = append(e.adopts, h) })
	}
}

// Died does what follows a DEAD that was just committed, or found owed: entry, acknowledgement, mark (design D11).
func (c *Effects) Died(t taskstate.Task, epoch int64, delivery string) {
	if t.DLQ != taskstate.DLQOwed || !c.cfg.Policy.DLQ {
		c.Ack(delivery)
		return
	}
	c.add(func(e *effectList) { e.deadLetters = append(e.deadLetters, deadLetterOf(t, epoch, delivery)) })
}

// writeDeadLettersNow writes owed dead letters for a sweep, which waits: after an error the rows owe them still.
func (c *Effects) writeDeadLettersNow(ctx context.Context, ls []DeadLetter) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if err := c.writeDeadLetters(ctx, ls); err != nil {
		return fmt.Errorf("write %d owed dead letters: %w", len(ls), ingestq.ErrUnavailable)
	}
	_ = c.ack(ctx, acksOf(ls)) // reconciling tries again
	if err := c.Mark(ctx, ls); err != nil {
		return fmt.Errorf("mark %d owed dead letters: %w", len(ls), taskstate.ErrUnavailable)
	}
	return nil
}

// acksOf are the deliveries to acknowledge after the dead letters were written.
func acksOf(ls []DeadLetter) (ids []string) {
	for _, l := range ls {
		if l.delivery != "" {
			ids = append(ids, l.delivery)
		}
	}
	return ids
}

// requeue replaces a delivery by a copy.
func (c *Effects) requeue(id string, e *pb.TaskEnvelope) {
	c.add(func(todo *effectList) { todo.copies = append(todo.copies, ingestq.Copy{ID: id, Envelope: e}) })
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
	wait := local.Backoff()
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
		if !pause.For(ctx, wait.Next()) {
			return
		}
		c.add(func(*effectList) {}) // try again what was kept
	}
}

// Flush does what waits now, once more than once if there is time, at the end of the process.
func (c *Effects) Flush(ctx context.Context) {
	wait := local.Backoff()
	for !c.Round(ctx) && pause.For(ctx, wait.Next()) {
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
	c.adopt(ctx, e.adopts)
	if c.writeDeadLetters(ctx, e.deadLetters) == nil { // else they stay owed in their rows: a sweep writes them
		e.acks, e.marks = append(e.acks, acksOf(e.deadLetters)...), append(e.marks, e.deadLetters...)
	}
	if c.handBack(ctx, e.copies) != nil {
		kept.copies = e.copies // only what is still pending is copied: a second try makes no second copy
	}
	if c.renewAll(ctx, e.renews) != nil {
		kept.renews = e.renews
	} else {
		for _, d := range e.renews {
			e.acks = append(e.acks, d.ID)
		}
	}
	c.publishAll(ctx, e.publishes)
	if c.ack(ctx, e.acks) != nil {
		kept.acks = e.acks
	}
	if c.Mark(ctx, e.marks) != nil {
		kept.marks = e.marks
	}
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

// tell calls the queue about n entries, if there are any, and warns when that fails.
func (c *Effects) tell(ctx context.Context, what string, n int, f func(ctx context.Context) error) error {
	if n == 0 {
		return nil
	}
	err := c.ask(ctx, f)
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
		c.Store.Health.Warn(ctx, "runner: queue", err, slog.String("what", what), slog.Int("entries", n))
	}
	return err
}

// adopt takes over the entries that rows name (the queue counts what it finds). One that is not found changes nothing: the
// entry is a hint (design D4).
func (c *Effects) adopt(ctx context.Context, claims []*local.Claim) {
	ids := make([]string, len(claims))
	for i, h := range claims {
		ids[i] = h.Delivery
	}
	var found map[string]bool
	err := c.tell(ctx, "adopt", len(ids), func(ctx context.Context) (err error) {
		found, err = c.pending.Adopt(ctx, ids...)
		return errors.Join(err, crash.Fault("worker.after_adopt"))
	})
	if err != nil {
		return
	}
	for _, h := range claims {
		if !found[h.Delivery] {
			h.EntryGone.Store(true)
		}
	}
}

func (c *Effects) writeDeadLetters(ctx context.Context, ls []DeadLetter) error {
	entries := make([]ingestq.DeadLetter, len(ls))
	for i, l := range ls {
		entries[i] = l.Entry
	}
	return c.tell(ctx, "write dead letters", len(ls), func(ctx context.Context) error {
		return errors.Join(c.DeadLetters.DeadLetters(ctx, entries), crash.Fault("worker.after_dlq_add"))
	})
}

// handBack replaces entries by copies of them. Inlined, its closure would keep the name of its crash point.
//
//go:noinline
func (c *Effects) handBack(ctx context.Context, cs []ingestq.Copy) error {
	return c.tell(ctx, "hand back", len(cs), func(ctx context.Context) error {
		es := make([]*pb.TaskEnvelope, len(cs))
		for i := range cs {
			es[i] = cs[i].Envelope
		}
		return traced(ctx, c.Tracer, c.pending, es, func(ctx context.Context) ([]string, error) {
			_, err := c.pending.Requeue(ctx, cs)
			return nil, errors.Join(err, crash.Fault("handback.after_copy"))
		})
	})
}

// publishAll adds deliveries; the rows of those that fail are enqueued again by the sweep.
func (c *Effects) publishAll(ctx context.Context, es []*pb.TaskEnvelope) {
	_ = c.tell(ctx, "publish", len(es), func(ctx context.Context) error {
		return traced(ctx, c.Tracer, c.pending, es, func(ctx context.Context) ([]string, error) {
			ids, err := c.pending.Publish(ctx, es)
			return ids, errors.Join(err, crash.Fault("handback.after_publish"))
		})
	})
}

// ack acknowledges deliveries. Inlined, its closure would keep the names of its crash points.
//
//go:noinline
func (c *Effects) ack(ctx context.Context, ids []string) error {
	return c.tell(ctx, "acknowledge", len(ids), func(ctx context.Context) error {
		if err := crash.Fault("worker.before_ack"); err != nil {
			return err
		}
		return errors.Join(c.Queue.Ack(ctx, ids...), crash.Fault("worker.after_ack"))
	})
}

// Mark notes in the rows that their dead letters were written.
func (c *Effects) Mark(ctx context.Context, ls []DeadLetter) error {
	if len(ls) == 0 {
		return nil
	}
	tokens := make(map[string]taskstate.Token, len(ls))
	for _, l := range ls {
		tokens[l.Entry.TaskID] = l.Token // of two deaths only the last can still be marked
	}
	ctx, cancel := context.WithTimeout(ctx, local.CallLimit)
	defer cancel()
	_, err := c.Store.Apply(ctx, taskstate.Batch{
		IDs: slices.Sorted(maps.Keys(tokens)), Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.MarkDLQ(m, t, tokens[t.ID])
		}),
	})
	if err != nil {
		c.Store.Health.Warn(ctx, "runner: mark dead letters", err, slog.Int("tasks", len(tokens)))
		return err
	}
	crash.Point("worker.after_dlq_mark")
	return nil
}

// renewAll enqueues rows anew whose records this process read and cannot claim. A row that is not QUEUED any more, or fails
// alone, needs none of them.
func (c *Effects) renewAll(ctx context.Context, ds []ingestq.Delivery) error {
	if len(ds) == 0 {
		return nil
	}
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.TaskID
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	ctx, cancel := context.WithTimeout(ctx, local.CallLimit)
	defer cancel()
	_, err := c.renewEnqueues(ctx, ids)
	if err != nil {
		c.Store.Health.Warn(ctx, "runner: enqueue records anew", err, slog.Int("tasks", len(ids)))
	}
	return err
}

// Quarantine puts an undecodable delivery away as it came. If that fails it stays pending and reconciling tries again.
func (c *Effects) Quarantine(ctx context.Context, d ingestq.Delivery) {
	err := c.ask(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return errors.Join(c.Queue.Quarantine(ctx, d), crash.Fault("worker.after_quarantine"))
	})
	if err == nil {
		err = d.Err
	}
	c.Store.Health.Warn(ctx, "runner: put an undecodable delivery away", err, slog.String("delivery", d.ID))
}
