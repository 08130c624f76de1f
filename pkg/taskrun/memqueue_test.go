package taskrun

import (
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/memq"
)

// memStream is a queue in memory whose calls are counted.
type memStream struct {
	*memq.Queue
	topic bool
	skew  time.Duration // the queue's clock is ahead of the database's by it

	mu     sync.Mutex
	called map[string]int
	fault  func(op string) error
}

// newMemStream makes a stream; a topic commits offsets.
func newMemStream(topic bool) *memStream {
	s := &memStream{topic: topic, called: map[string]int{}}
	clock := func() time.Time { return instant().Add(s.skew) }
	s.Queue = memq.New(memq.Options{Commits: topic, Clock: clock, Fault: s.asked})
	return s
}

// asked counts a call, and lets the fault decide about it.
func (s *memStream) asked(op string) error {
	s.mu.Lock()
	s.called[op]++
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(op)
}

// send adds a delivery for a task from outside.
func (s *memStream) send(taskID string) string { return s.Add(map[string]string{"taskId": taskID}) }

// garbage adds an entry that nobody can decode.
func (s *memStream) garbage() string { return s.Add(map[string]string{"x": "y"}) }

// give hands an entry for a task to a member, as if it had read it.
func (s *memStream) give(taskID, consumer string) string {
	id := s.send(taskID)
	s.each(func(e *memq.Entry) {
		if e.ID == id && e.Consumer == "" {
			e.Give(consumer)
		}
	})
	return id
}

// each shows the entries to f, which may change them.
func (s *memStream) each(f func(e *memq.Entry)) {
	s.Change(func(c *memq.Content) {
		for _, e := range c.Entries {
			f(e)
		}
	})
}

// deleteData deletes the data of an entry and leaves it pending.
func (s *memStream) deleteData(id string) {
	s.each(func(e *memq.Entry) {
		if e.ID == id {
			e.Delivery, e.Gone = ingestq.Delivery{ID: id}, true
		}
	})
}

// wipe takes away all that the queue has.
func (s *memStream) wipe() {
	s.Change(func(c *memq.Content) { c.Entries, c.DeadLetters = nil, nil })
}

// kill ends a member's heartbeat.
func (s *memStream) kill(name string) {
	s.Change(func(c *memq.Content) { delete(c.Alive, name) })
}

// alive counts members whose heartbeat goes on.
func (s *memStream) alive() (n int) {
	s.Change(func(c *memq.Content) { n = len(c.Alive) })
	return n
}

// rebalance gives what is not finished to be read again, as a group that commits offsets does when a member leaves.
func (s *memStream) rebalance() {
	s.each(func(e *memq.Entry) {
		if !e.Done {
			e.Consumer = ""
		}
	})
}

// claims tells whether an entry was read and not acknowledged.
func (s *memStream) claims(id string) (held bool) {
	s.Change(func(c *memq.Content) { held = c.Held(id) != nil })
	return held
}

func (s *memStream) setFault(f func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *memStream) calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called[op]
}

// deadLetters returns the dead letters that rows owed.
func (s *memStream) deadLetters() (all []ingestq.DeadLetter) {
	s.Change(func(c *memq.Content) {
		for _, l := range c.DeadLetters {
			if l.Raw == nil {
				all = append(all, l.DeadLetter)
			}
		}
	})
	return all
}

// raw returns what was put away as it came.
func (s *memStream) raw() (all []ingestq.StoredDeadLetter) {
	s.Change(func(c *memq.Content) {
		for _, l := range c.DeadLetters {
			if l.Raw != nil {
				all = append(all, l)
			}
		}
	})
	return all
}

func (s *memStream) counts() (waiting, pending, added, deadLetters int) {
	s.Change(func(c *memq.Content) {
		added = c.Added
		for _, e := range c.Entries {
			switch {
			case e.Consumer == "" && !e.Gone:
				waiting++
			case e.Consumer != "" && !e.Done:
				pending++
			}
		}
	})
	return waiting, pending, added, len(s.deadLetters())
}
