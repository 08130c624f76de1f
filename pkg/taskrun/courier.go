package taskrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// keepEffects bounds what waits for a queue that does not answer. Beyond it effects are dropped:
// reconciling, the promises in the rows and the owed entries do the same work later.
const keepEffects = 20_000

// adopted is the row's own entry that a retry or takeover wants.
type adopted struct {
	h        *claim
	delivery string
}

// deadLetter is an entry of the dead letter queue with what follows it.
type deadLetter struct {
	entry    ingestq.DeadLetter
	token    taskstate.Token
	delivery string // acknowledged after the entry was written; empty: none
}

// deadLetterOf is the dead letter of a DEAD row.
func deadLetterOf(t taskstate.Task, epoch int64, delivery string) deadLetter {
	return deadLetter{
		entry: ingestq.DeadLetter{
			TaskID: t.ID, Fence: t.Fence, SourceRecordID: t.Delivery,
			LastError: t.LastError, AttemptCount: t.AttemptCount, FailedAt: t.UpdatedAt,
		},
		token: taskstate.Token{Epoch: epoch, Fence: t.Fence}, delivery: delivery,
	}
}

// waitingEffects are effects on the queue that follow commits.
type waitingEffects struct {
	adopts      []adopted
	deadLetters []deadLetter
	copies      []ingestq.Copy
	renews      []ingestq.Delivery
	publishes   []*pb.TaskEnvelope
	acks        []string
	marks       []deadLetter
}

// size counts them.
func (e *waitingEffects) size() int {
	return len(e.adopts) + len(e.deadLetters) + len(e.copies) + len(e.renews) + len(e.publishes) + len(e.acks) + len(e.marks)
}

// queueEffects does the effects of all commits in few round trips, so that a queue that does not answer holds up no transaction.
type queueEffects struct {
	r *Runner

	mu     sync.Mutex
	todo   waitingEffects
	bundle int // calls of together under way
	wake   chan struct{}
	turn   sync.Mutex // one round at a time: adoption comes before the acknowledgement of the same entry
}

func newQueueEffects(r *Runner) *queueEffects {
	return &queueEffects{r: r, wake: make(chan struct{}, 1)}
}

// add adds effects, unless too many wait.
func (c *queueEffects) add(f func(e *waitingEffects)) {
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

// together lets what f adds wait for its end: a round that began with the first effect would take few of the others along.
func (c *queueEffects) together(f func()) {
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
func (c *queueEffects) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ack acknowledges a delivery; "" is none.
func (c *queueEffects) ack(id string) {
	if id != "" {
		c.add(func(e *waitingEffects) { e.acks = append(e.acks, id) })
	}
}

// adopt takes over the row's own entry.
func (c *queueEffects) adopt(h *claim) {
	if h.delivery != "" {
		c.add(func(e *waitingEffects) { e.adopts = append(e.adopts, adopted{h, h.delivery}) })
	}
}

// writeDeadLetter writes a dead letter, then acknowledges, then marks the row.
func (c *queueEffects) writeDeadLetter(l deadLetter) {
	c.add(func(e *waitingEffects) { e.deadLetters = append(e.deadLetters, l) })
}

// writeDeadLettersNow is bury for a sweep, which waits: an error leaves the debts as they are.
func (c *queueEffects) writeDeadLettersNow(ctx context.Context, ls []deadLetter) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	written := c.deadLetters(ctx, ls)
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
	if len(c.marks(ctx, written)) > 0 {
		return fmt.Errorf("mark %d owed dead letters: %w", len(ls), taskstate.ErrUnavailable)
	}
	return nil
}

// requeue replaces a delivery by a copy.
func (c *queueEffects) requeue(cp ingestq.Copy) {
	c.add(func(e *waitingEffects) { e.copies = append(e.copies, cp) })
}

// renew enqueues the row of a record anew, and then acknowledges that.
func (c *queueEffects) renew(d ingestq.Delivery) {
	c.add(func(e *waitingEffects) { e.renews = append(e.renews, d) })
}

// publish adds a delivery.
func (c *queueEffects) publish(t taskstate.Task) {
	c.add(func(e *waitingEffects) { e.publishes = append(e.publishes, ingestq.EnvelopeOf(t)) })
}

// loop does effects as they come, until ctx ends.
func (c *queueEffects) loop(ctx context.Context) {
	var wait backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		if c.round(ctx) {
			wait.reset()
			continue
		}
		if !pause(ctx, wait.after()) {
			return
		}
		c.add(func(*waitingEffects) {}) // try again what was kept
	}
}

// flush does what waits now, once more than once if there is time, at the end of the process.
func (c *queueEffects) flush(ctx context.Context) {
	var wait backoff
	for !c.round(ctx) && pause(ctx, wait.after()) {
	}
}

// round does all effects that wait; it reports whether none was kept for another try.
func (c *queueEffects) round(ctx context.Context) bool {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	e := c.todo
	c.todo = waitingEffects{}
	c.mu.Unlock()
	if e.size() == 0 {
		return true
	}
	var kept waitingEffects
	c.adopts(ctx, e.adopts)
	written := c.deadLetters(ctx, e.deadLetters)
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
	kept.marks = c.marks(ctx, append(e.marks, written...))
	if kept.size() == 0 {
		return true
	}
	c.add(func(todo *waitingEffects) {
		todo.copies = append(todo.copies, kept.copies...)
		todo.renews = append(todo.renews, kept.renews...)
		todo.acks = append(todo.acks, kept.acks...)
		todo.marks = append(todo.marks, kept.marks...)
	})
	return false
}

// queue calls the queue once, with a limit, and notes how it went.
func (c *queueEffects) queue(ctx context.Context, what string, n int, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	began := c.r.deps.Now()
	err := f(ctx)
	c.r.health.queueCall(began, err)
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
		c.r.health.warn(ctx, "runner: queue", err, slog.String("what", what), slog.Int("entries", n))
	}
	return err
}

// adopts takes over the entries that rows name (the queue counts what it finds). One that is not found changes nothing: the entry is a hint (design D4).
func (c *queueEffects) adopts(ctx context.Context, as []adopted) {
	if len(as) == 0 {
		return
	}
	ids := make([]string, len(as))
	for i, a := range as {
		ids[i] = a.delivery
	}
	var found map[string]bool
	err := c.queue(ctx, "adopt", len(ids), func(ctx context.Context) (err error) {
		found, err = c.r.deps.Queue.Adopt(ctx, ids...)
		return errors.Join(err, crash.Fault("worker.after_adopt"))
	})
	if err != nil {
		return
	}
	for _, a := range as {
		if !found[a.delivery] {
			a.h.entryGone.Store(true)
		}
	}
}

// deadLetters writes dead letters and returns those that were written. The others stay owed in their rows: a sweep writes them.
func (c *queueEffects) deadLetters(ctx context.Context, ls []deadLetter) []deadLetter {
	if len(ls) == 0 {
		return nil
	}
	entries := make([]ingestq.DeadLetter, len(ls))
	for i, l := range ls {
		entries[i] = l.entry
	}
	err := c.queue(ctx, "write dead letters", len(ls), func(ctx context.Context) error {
		return errors.Join(c.r.deadLetterWriter().DeadLetters(ctx, entries), crash.Fault("worker.after_dlq_add"))
	})
	if err != nil {
		return nil
	}
	return ls
}

// copies hands entries back; it answers those to try again.
func (c *queueEffects) copies(ctx context.Context, cs []ingestq.Copy) []ingestq.Copy {
	if len(cs) == 0 {
		return nil
	}
	err := c.queue(ctx, "hand back", len(cs), func(ctx context.Context) error {
		es := make([]*pb.TaskEnvelope, len(cs))
		for i := range cs {
			es[i] = cs[i].Envelope
		}
		return traced(ctx, c.r.deps.Tracer, c.r.deps.Queue, es, func(ctx context.Context) ([]string, error) {
			_, err := c.r.deps.Queue.Requeue(ctx, cs)
			return nil, errors.Join(err, crash.Fault("handback.after_copy"))
		})
	})
	if err != nil {
		return cs // the script copies only what is still pending: a second try makes no second copy
	}
	return nil
}

// publishes adds deliveries; what fails is promised in its row.
func (c *queueEffects) publishes(ctx context.Context, es []*pb.TaskEnvelope) {
	if len(es) == 0 {
		return
	}
	_ = c.queue(ctx, "publish", len(es), func(ctx context.Context) error {
		return traced(ctx, c.r.deps.Tracer, c.r.deps.Queue, es, func(ctx context.Context) ([]string, error) {
			ids, err := c.r.deps.Queue.Publish(ctx, es)
			return ids, errors.Join(err, crash.Fault("handback.after_publish"))
		})
	})
}

// acks acknowledges everything at once; it answers what to try again.
func (c *queueEffects) acks(ctx context.Context, ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	err := c.queue(ctx, "acknowledge", len(ids), func(ctx context.Context) error {
		if err := crash.Fault("worker.before_ack"); err != nil {
			return err
		}
		return errors.Join(c.r.deps.Queue.Ack(ctx, ids...), crash.Fault("worker.after_ack"))
	})
	if err != nil {
		return ids
	}
	return nil
}

// marks notes in the rows that their dead letters were written; it answers those to try again.
func (c *queueEffects) marks(ctx context.Context, ls []deadLetter) []deadLetter {
	if len(ls) == 0 {
		return nil
	}
	tokens := make(map[string]taskstate.Token, len(ls))
	var ids []string
	for _, l := range ls {
		if _, known := tokens[l.entry.TaskID]; !known {
			ids = append(ids, l.entry.TaskID)
		}
		tokens[l.entry.TaskID] = l.token // of two deaths only the last can still be marked
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := c.r.apply(ctx, taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.MarkDLQ(m, t, tokens[t.ID])
		}),
	})
	if err != nil {
		c.r.health.warn(ctx, "runner: mark dead letters", err, slog.Int("tasks", len(ids)))
		return ls
	}
	crash.Point("worker.after_dlq_mark")
	return nil
}
