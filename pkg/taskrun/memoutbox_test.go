package taskrun

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// memOutbox is an outbox in memory whose relay sends deliveries at once, unless it is stopped.
type memOutbox struct {
	stream *memStream

	mu          sync.Mutex
	seq         int64
	trails      map[string]taskstate.EventTrail
	deadLetters []ingestq.UnsentDeadLetter // dead letters that nobody has sent
	stopped     bool                       // deliveries wait
	asked       int
	box         ingestq.DeadLetterWriter // of the other transport
}

// newTopicWorld is a world whose stream is a topic, and whose deliveries are events.
func newTopicWorld(t *testing.T) *world {
	w := newWorld(t)
	w.stream = newMemStream(true)
	w.outbox = &memOutbox{stream: w.stream, trails: map[string]taskstate.EventTrail{}}
	w.store.outbox = w.outbox.write
	return w
}

// write takes the event of a row.
func (o *memOutbox) write(t taskstate.Task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	if t.Status == taskstate.StatusDead {
		o.deadLetters = append(o.deadLetters, ingestq.UnsentDeadLetter{Seq: o.seq, TaskID: t.ID, Fence: t.Fence})
		return
	}
	trail := o.trails[t.ID]
	if o.stopped {
		trail.Waiting = true
	} else {
		trail.LastSent, trail.SentAt = o.seq, instant()
		o.stream.send(t.ID)
	}
	o.trails[t.ID] = trail
}

func (o *memOutbox) Trails(_ context.Context, _ taskstate.Tx, ids []string) (map[string]taskstate.EventTrail, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked += len(ids)
	out := map[string]taskstate.EventTrail{}
	for _, id := range ids {
		if trail, ok := o.trails[id]; ok {
			out[id] = trail
		}
	}
	return out, nil
}

func (o *memOutbox) UnsentDeadLetters(_ context.Context, n int) ([]ingestq.UnsentDeadLetter, error) {
	all := o.unsent()
	return all[:min(n, len(all))], nil
}

func (o *memOutbox) LockDeadLetters(_ context.Context, _ taskstate.Tx, seqs []int64) (map[int64]bool, error) {
	out := map[int64]bool{}
	for _, l := range o.unsent() {
		if slices.Contains(seqs, l.Seq) {
			out[l.Seq] = true
		}
	}
	return out, nil
}

func (o *memOutbox) DropDeadLetters(_ context.Context, _ taskstate.Tx, seqs []int64) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.deadLetters)
	o.deadLetters = slices.DeleteFunc(o.deadLetters, func(l ingestq.UnsentDeadLetter) bool { return slices.Contains(seqs, l.Seq) })
	return before - len(o.deadLetters), nil
}

// unsent returns the dead letters.
func (o *memOutbox) unsent() []ingestq.UnsentDeadLetter {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.deadLetters)
}

// count returns how many rows it was asked about.
func (o *memOutbox) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}
