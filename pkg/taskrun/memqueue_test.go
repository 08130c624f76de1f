package taskrun

import (
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/memq"
	pb "github.com/millweir/millweir/proto"
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
	s.Queue = memq.New(memq.Options{Commits: topic, Clock: func() time.Time { return instant().Add(s.skew) }})
	s.SetFault(func(op string) error {
		s.mu.Lock()
		s.called[op]++
		fault := s.fault
		s.mu.Unlock()
		if fault == nil {
			return nil
		}
		return fault(op)
	})
	return s
}

// send adds a delivery for a task from outside.
func (s *memStream) send(taskID string) string {
	id, err := s.Send(&pb.TaskEnvelope{TaskId: taskID})
	if err != nil {
		panic(err)
	}
	return id
}

// garbage adds an entry that nobody can decode.
func (s *memStream) garbage() string { return s.Add(map[string]string{"x": "y"}) }

// give hands an entry for a task to a member, as if it had read it.
func (s *memStream) give(taskID, consumer string) string {
	id := s.send(taskID)
	s.Give(id, consumer)
	return id
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
	for _, l := range s.DeadLetters() {
		if l.Raw == nil {
			all = append(all, l.DeadLetter)
		}
	}
	return all
}

// raw returns what was put away as it came.
func (s *memStream) raw() (all []ingestq.StoredDeadLetter) {
	for _, l := range s.DeadLetters() {
		if l.Raw != nil {
			all = append(all, l)
		}
	}
	return all
}

func (s *memStream) counts() (waiting, pending, added, deadLetters int) {
	waiting, pending, added = s.Count()
	return waiting, pending, added, len(s.deadLetters())
}
