// Package memq is a transport in memory: one queue with one group, which ends with its process.
//
// It is the smallest complete implementation of the port, and what tests use instead of a server. A queue has the
// manners of a Redis Stream, or with Commits those of a topic whose group commits offsets.
package memq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// Options are what a queue can be told.
type Options struct {
	// Commits: members acknowledge by offset; they are plain Consumers, and what is not finished counts as not read.
	Commits bool
	// Clock is the queue's own; nil: time.Now.
	Clock func() time.Time
}

// Queue is what members of one group share. It is safe for concurrent use.
type Queue struct {
	opts Options

	mu          sync.Mutex
	seq         int
	made        bool     // something was added since the queue was new or wiped
	entries     []*entry // what was not trimmed, in order of their ids
	next        int      // index of the first that no member was given
	byID        map[string]*entry
	deadLetters []ingestq.StoredDeadLetter
	alive       map[string]bool
	added       chan struct{} // closed when an entry is added
	fault       func(op string) error
}

// entry is one delivery.
type entry struct {
	id       string
	at       time.Time
	fields   map[string]string
	state    state
	consumer string
	since    time.Time // when it was given to consumer
	count    int64     // how often it was given
	gone     bool      // its fields were deleted
}

type state int

const (
	unread state = iota
	pending
	done
)

// New makes an empty queue.
func New(o Options) *Queue {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Queue{opts: o, byID: map[string]*entry{}, alive: map[string]bool{}, added: make(chan struct{})}
}

// Join makes a member of the group: an ingestq.PendingQueue unless the queue commits offsets. Names are unique.
func (q *Queue) Join(name string) ingestq.Consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alive[name] = true
	m := member{q: q, name: name}
	if q.opts.Commits {
		return &m
	}
	return &pendingMember{m}
}

// add adds an entry; q.mu is held.
func (q *Queue) add(fields map[string]string) *entry {
	q.seq, q.made = q.seq+1, true
	now := q.opts.Clock()
	e := &entry{id: fmt.Sprintf("%015d-%06d", now.UnixMilli(), q.seq), at: now, fields: fields}
	q.entries = append(q.entries, e)
	q.byID[e.id] = e
	close(q.added)
	q.added = make(chan struct{})
	return e
}

// finish acknowledges; it reports whether the entry was pending. q.mu is held.
func (q *Queue) finish(id string) bool {
	e := q.byID[id]
	if e == nil || e.state != pending {
		return false
	}
	e.state = done
	return true
}

// do calls f under the lock, unless a test has set a fault for op.
func (q *Queue) do(op string, f func()) error {
	q.mu.Lock()
	fault := q.fault
	q.mu.Unlock()
	if fault != nil {
		if err := fault(op); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	return nil
}

// encode renders an envelope as Redis Streams have it.
func encode(e *pb.TaskEnvelope) (map[string]string, error) {
	fields, err := pb.EncodeFields(e)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", e.GetTaskId(), err)
	}
	out := make(map[string]string, len(fields))
	for _, f := range fields {
		out[f.Name] = f.Value
	}
	return out, nil
}

// delivery is what a member is given.
func (e *entry) delivery() ingestq.Delivery {
	if e.gone {
		return ingestq.Delivery{ID: e.id}
	}
	envelope, err := pb.DecodeFields(e.fields)
	if err != nil {
		return ingestq.Delivery{ID: e.id, Raw: e.fields, Err: err}
	}
	return ingestq.Delivery{ID: e.id, Envelope: envelope}
}

// member is one member of the group.
type member struct {
	q    *Queue
	name string
}

// Name implements ingestq.Consumer.
func (m *member) Name() string { return m.name }

// Destination implements ingestq.Described.
func (m *member) Destination() (system, name string) { return "memory", "tasks" }

// Read implements ingestq.Consumer.
func (m *member) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	timer := time.NewTimer(block)
	defer timer.Stop()
	for {
		var out []ingestq.Delivery
		var added <-chan struct{}
		err := m.q.do("read", func() { out, added = m.take(n), m.q.added })
		if err != nil || len(out) > 0 {
			return out, err
		}
		select {
		case <-added:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes at most n that nobody was given; q.mu is held.
func (m *member) take(n int) (out []ingestq.Delivery) {
	for q := m.q; len(out) < n && q.next < len(q.entries); q.next++ {
		if e := q.entries[q.next]; e.state == unread && !e.gone {
			e.state, e.consumer, e.since, e.count = pending, m.name, time.Now(), e.count+1
			out = append(out, e.delivery())
		}
	}
	return out
}

// Ack implements ingestq.Consumer.
func (m *member) Ack(_ context.Context, ids ...string) error {
	return m.q.do("ack", func() {
		for _, id := range ids {
			m.q.finish(id)
		}
	})
}

// Quarantine implements ingestq.Consumer.
func (m *member) Quarantine(_ context.Context, d ingestq.Delivery) error {
	return m.q.do("quarantine", func() {
		if m.q.finish(d.ID) {
			l := ingestq.DeadLetter{SourceRecordID: d.ID, LastError: fmt.Sprint(d.Err), FailedAt: m.q.opts.Clock()}
			m.q.deadLetters = append(m.q.deadLetters, ingestq.StoredDeadLetter{DeadLetter: l, Raw: d.Raw})
		}
	})
}

// Watermark implements ingestq.Consumer.
func (m *member) Watermark(context.Context) (h ingestq.Watermark, err error) {
	err = m.q.do("watermark", func() {
		h.Now = m.q.opts.Clock()
		for _, e := range m.q.entries {
			if e.state == unread || m.q.opts.Commits && e.state == pending {
				h.At = e.at
				return
			}
		}
	})
	return h, err
}

// Stats implements ingestq.Consumer.
func (m *member) Stats(context.Context) (s ingestq.Stats, err error) {
	err = m.q.do("stats", func() {
		if s.Lag = -1; !m.q.made {
			return
		}
		s = ingestq.Stats{Length: int64(len(m.q.entries))}
		for _, e := range m.q.entries {
			switch e.state {
			case unread:
				s.Lag++
			case pending:
				s.Pending++
			case done:
			}
		}
	})
	return s, err
}

// Run implements ingestq.Consumer.
func (m *member) Run(ctx context.Context) error {
	<-ctx.Done()
	m.q.Kill(m.name)
	return nil
}

// Ping implements ingestq.Consumer.
func (m *member) Ping(context.Context) error { return m.q.do("ping", func() {}) }

// pendingMember keeps what it has read until it is acknowledged.
type pendingMember struct{ member }

var _ ingestq.PendingQueue = (*pendingMember)(nil)

// Publish implements ingestq.Publisher.
func (m *pendingMember) Publish(_ context.Context, envelopes []*pb.TaskEnvelope) (ids []string, err error) {
	var errs []error
	err = m.q.do("publish", func() {
		ids = make([]string, len(envelopes))
		for i, e := range envelopes {
			if fields, err := encode(e); err != nil {
				errs = append(errs, err)
			} else {
				ids[i] = m.q.add(fields).id
			}
		}
	})
	return ids, errors.Join(append(errs, err)...)
}

// Requeue implements ingestq.PendingQueue.
func (m *pendingMember) Requeue(_ context.Context, copies []ingestq.Copy) (n int, err error) {
	var errs []error
	err = m.q.do("requeue", func() {
		for _, c := range copies {
			if fields, err := encode(c.Envelope); err != nil {
				errs = append(errs, err)
			} else if m.q.finish(c.ID) {
				m.q.add(fields)
				n++
			}
		}
	})
	return n, errors.Join(append(errs, err)...)
}

// Adopt implements ingestq.PendingQueue. What is gone is pending no more.
func (m *pendingMember) Adopt(_ context.Context, ids ...string) (found map[string]bool, err error) {
	err = m.q.do("adopt", func() {
		found = make(map[string]bool, len(ids))
		for _, id := range ids {
			e := m.q.byID[id]
			if found[id] = e != nil && e.state == pending && !e.gone; found[id] {
				e.consumer, e.since = m.name, time.Now()
			} else if e != nil && e.gone {
				m.q.finish(id)
			}
		}
	})
	return found, err
}

// Pending implements ingestq.PendingQueue.
func (m *pendingMember) Pending(_ context.Context, minIdle time.Duration, after string, n int) (out []ingestq.Pending, err error) {
	err = m.q.do("pending", func() {
		for _, e := range m.q.entries {
			if idle := time.Since(e.since); e.state == pending && idle >= minIdle && e.id > after && len(out) < n {
				out = append(out, ingestq.Pending{
					Delivery: e.delivery(), Consumer: e.consumer, Alive: m.q.alive[e.consumer],
					Idle: idle, Deliveries: e.count, Gone: e.gone,
				})
			}
		}
	})
	return out, err
}

// DeadLetters implements ingestq.PendingQueue.
func (m *pendingMember) DeadLetters(_ context.Context, deadLetters []ingestq.DeadLetter) error {
	return m.q.do("dead letters", func() {
		for _, l := range deadLetters {
			m.q.deadLetters = append(m.q.deadLetters, ingestq.StoredDeadLetter{DeadLetter: l})
		}
	})
}

// Unpin implements ingestq.PendingQueue.
func (m *pendingMember) Unpin(_ context.Context, idle time.Duration, ids ...string) error {
	return m.q.do("unpin", func() {
		for _, id := range ids {
			if e := m.q.byID[id]; e != nil && time.Since(e.since) >= idle {
				m.q.finish(id)
			}
		}
	})
}

// Trim implements ingestq.PendingQueue.
func (m *pendingMember) Trim(context.Context) (removed int64, err error) {
	err = m.q.do("trim", func() {
		for q := m.q; len(q.entries) > 0 && q.entries[0].state == done; q.next-- {
			delete(q.byID, q.entries[0].id)
			q.entries = q.entries[1:]
			removed++
		}
	})
	return removed, err
}
