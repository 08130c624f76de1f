package mirror

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// known are the tasks that have a copy, as the queue itself has told on this connection, each with the round in which its copy was last
// met or published. It is safe for concurrent use.
type known struct {
	mu     sync.Mutex
	rounds map[uuid.UUID]int
	more   map[uuid.UUID]int // copies of the present or last round beyond one a task; those of no task with the zero id
	round  int               // the present one, or the last
	first  bool              // a whole round is over: what is not known has no copy
}

func newKnown() *known { return &known{rounds: map[uuid.UUID]int{}, more: map[uuid.UUID]int{}} }

// begin begins a round and returns its number.
func (k *known) begin() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.round++
	clear(k.more)
	return k.round
}

// heldRounds is in how many rounds a copy may not be met while others take copies too. Nobody holds one for so long: a round for the queue's
// length comes every 10 s.
const heldRounds = 10

// end ends the round. A task whose copy was not met has none if the round was alone: else somebody may have held it, for a while.
func (k *known) end(alone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.first = true
	oldest := k.round
	if !alone {
		oldest -= heldRounds
	}
	maps.DeleteFunc(k.rounds, func(_ uuid.UUID, round int) bool { return round < oldest })
}

// add notes a copy that was published and confirmed.
func (k *known) add(id uuid.UUID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rounds[id] = k.round
}

// met notes a copy that was met, and confirmed anew with the round's mark.
func (k *known) met(c taken, mark string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.CorrelationId != mark && (c.envelope == nil || k.rounds[c.id] == k.round) { // else it was counted in this round
		k.more[c.id]++
	}
	if c.envelope != nil {
		k.rounds[c.id] = k.round
	}
}

// remove forgets a task of which a copy is about to be acknowledged. Others of its copies that were met before are not known any more.
func (k *known) remove(id uuid.UUID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.rounds, id)
	delete(k.more, id)
}

func (k *known) has(id uuid.UUID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, has := k.rounds[id]
	return has
}

func (k *known) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.rounds)
}

// copies is how many there are in the queue, as far as is known.
func (k *known) copies() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.rounds)
	for _, more := range k.more {
		n += more
	}
	return n
}

// complete reports whether a first round of the connection is over.
func (k *known) complete() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first
}

// current is the number of the present or last round.
func (k *known) current() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.round
}

// all returns the tasks in the order of their ids.
func (k *known) all() []uuid.UUID {
	k.mu.Lock()
	out := make([]uuid.UUID, 0, len(k.rounds))
	for id := range k.rounds {
		out = append(out, id)
	}
	k.mu.Unlock()
	slices.SortFunc(out, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return out
}
