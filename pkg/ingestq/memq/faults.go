package memq

import (
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// What other programs and disasters do to a queue.

// Add adds an entry with any fields past the codec, and returns its id.
func (q *Queue) Add(fields map[string]string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(fields).id
}

// Send adds a delivery as another process would.
func (q *Queue) Send(e *pb.TaskEnvelope) (id string, err error) {
	fields, err := encode(e)
	if err != nil {
		return "", err
	}
	return q.Add(fields), nil
}

// Delete deletes the fields of an entry and leaves its pending state.
func (q *Queue) Delete(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.byID[id]; e != nil {
		e.gone = true
	}
}

// Wipe takes away all that the queue has.
func (q *Queue) Wipe() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.made, q.entries, q.next, q.deadLetters = false, nil, 0, nil
	clear(q.byID)
}

// Kill ends a member's heartbeat.
func (q *Queue) Kill(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.alive, name)
}

// Rebalance gives what is not finished to be read again, as a group that commits offsets does when a member leaves.
func (q *Queue) Rebalance() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.entries {
		if e.state == pending {
			e.state = unread
		}
	}
	q.next = 0
	close(q.added)
	q.added = make(chan struct{})
}

// SetFault lets f be asked before each call, by its name; its error is the call's.
func (q *Queue) SetFault(f func(op string) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fault = f
}

// Alive counts members whose heartbeat goes on.
func (q *Queue) Alive() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.alive)
}

// DeadLetters returns the dead letters, oldest first.
func (q *Queue) DeadLetters() []ingestq.StoredDeadLetter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.deadLetters)
}

// Give hands an entry that was not read to a member, as if it had read it.
func (q *Queue) Give(id, member string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.byID[id]; e != nil && e.state == unread {
		e.state, e.consumer, e.since, e.count = pending, member, time.Now(), 1
	}
}

// Count counts entries that no member was given, those that were read and not acknowledged, and all that were ever added.
func (q *Queue) Count() (unreads, pendings, added int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.entries {
		switch {
		case e.state == unread && !e.gone:
			unreads++
		case e.state == pending:
			pendings++
		}
	}
	return unreads, pendings, q.seq
}

// Claims tells whether an entry was read and not acknowledged.
func (q *Queue) Claims(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byID[id] != nil && q.byID[id].state == pending
}
