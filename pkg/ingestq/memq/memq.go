// Package memq is a transport in memory: one queue with one group, which ends with its process.
//
// It is the smallest complete implementation of the port, and what tests use instead of a server. A queue has the
// manners of a Redis Stream, or with Commits those of a topic whose group commits offsets.
package memq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// Options are what a queue can be told. With Commits members acknowledge by offset: they are plain Consumers, and
// what is not finished counts as not read.
type Options struct {
	Commits bool
	Clock   func() time.Time      // the queue's own
	Fault   func(op string) error // asked before each call of a member, by its name; nil: no call fails
}

// Queue is what members of one group share. It is safe for concurrent use.
type Queue struct {
	opts    Options
	mu      sync.Mutex
	content Content
}

// Content is what a queue holds.
type Content struct {
	Entries     []*Entry // what was not trimmed, in order of their ids; nil: nothing was ever added
	Added       int      // entries since New
	DeadLetters []ingestq.StoredDeadLetter
	Alive       map[string]bool // members by name

	clock   func() time.Time
	changed chan struct{} // closed when there may be something to read
}

// Entry is one delivery. Without a Consumer nobody was given it; Alive and Idle are not set.
type Entry struct {
	ingestq.Pending
	Done         bool // acknowledged
	added, given time.Time
}

// New makes an empty queue.
func New(o Options) *Queue {
	return &Queue{opts: o, content: Content{Alive: map[string]bool{}, clock: o.Clock, changed: make(chan struct{})}}
}

// Join makes a member of the group: an ingestq.PendingQueue unless the queue commits offsets. Names are unique.
func (q *Queue) Join(name string) ingestq.Consumer {
	q.Change(func(c *Content) { c.Alive[name] = true })
	m := &member{q, name}
	if q.opts.Commits {
		return struct{ ingestq.Consumer }{m} // and no more
	}
	return m
}

// Change lets f look at what the queue holds, or change it as other programs and disasters do.
func (q *Queue) Change(f func(c *Content)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f(&q.content)
	q.content.wake()
}

// Add adds an entry with any fields, as another program would, and returns its id.
func (q *Queue) Add(fields map[string]string) (id string) {
	e, err := pb.DecodeFields(fields)
	d := ingestq.Decoded("", e)
	if err != nil {
		d = ingestq.Delivery{Raw: fields, Err: err}
	}
	q.Change(func(c *Content) { id = c.add(d) })
	return id
}

// add adds a delivery and returns its id.
func (c *Content) add(d ingestq.Delivery) string {
	c.Added++
	now := c.clock()
	d.ID = fmt.Sprintf("%015d-%06d", now.UnixMilli(), c.Added)
	c.Entries = append(c.Entries, &Entry{Pending: ingestq.Pending{Delivery: d}, added: now})
	c.wake()
	return d.ID
}

// publish adds an envelope that can be encoded.
func (c *Content) publish(e *pb.TaskEnvelope) (id string, err error) {
	if _, err = pb.EncodeFields(e); err != nil {
		return "", fmt.Errorf("encode %s: %w", e.GetTaskId(), err)
	}
	return c.add(ingestq.Decoded("", e)), nil
}

// wake lets waiting members look again.
func (c *Content) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Held is the entry with that id, if it was given and is not acknowledged; else nil.
func (c *Content) Held(id string) *Entry {
	i := slices.IndexFunc(c.Entries, func(e *Entry) bool { return e.ID == id && e.Consumer != "" && !e.Done })
	if i < 0 {
		return nil
	}
	return c.Entries[i]
}

// Give gives the entry to a member.
func (e *Entry) Give(member string) { e.Consumer, e.given = member, time.Now() }

// member is one member of the group, which does what ingestq.PendingQueue says.
type member struct {
	q    *Queue
	name string
}

var _ ingestq.PendingQueue = (*member)(nil)

// do calls f under the lock, unless a fault comes before.
func (m *member) do(op string, f func(c *Content)) error {
	if m.q.opts.Fault != nil {
		if err := m.q.opts.Fault(op); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	f(&m.q.content)
	return nil
}

func (m *member) Name() string                             { return m.name }
func (m *member) Destination(string) (system, name string) { return "memory", "tasks" }
func (m *member) Ping(context.Context) error               { return m.do("ping", func(*Content) {}) }

func (m *member) Read(ctx context.Context, n int, block time.Duration) (out []ingestq.Delivery, err error) {
	over := time.After(block)
	for {
		var changed <-chan struct{}
		err = m.do("read", func(c *Content) {
			for _, e := range c.Entries {
				if e.Consumer == "" && !e.Gone && len(out) < n {
					e.Give(m.name)
					e.Deliveries++
					out = append(out, e.Delivery)
				}
			}
			changed = c.changed
		})
		if err != nil || len(out) > 0 {
			return out, err
		}
		select {
		case <-changed:
		case <-over:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *member) Ack(_ context.Context, ids ...string) error { return m.finish("ack", 0, ids) }

func (m *member) Unpin(_ context.Context, idle time.Duration, ids ...string) error {
	return m.finish("unpin", idle, ids)
}

// finish acknowledges what is idle for at least so long.
func (m *member) finish(op string, idle time.Duration, ids []string) error {
	return m.do(op, func(c *Content) {
		for _, id := range ids {
			if e := c.Held(id); e != nil && time.Since(e.given) >= idle {
				e.Done = true
			}
		}
	})
}

func (m *member) Quarantine(_ context.Context, d ingestq.Delivery) error {
	return m.do("quarantine", func(c *Content) {
		if e := c.Held(d.ID); e != nil {
			e.Done = true
			l := ingestq.DeadLetter{SourceRecordID: d.ID, LastError: fmt.Sprint(d.Err), FailedAt: c.clock()}
			c.DeadLetters = append(c.DeadLetters, ingestq.StoredDeadLetter{DeadLetter: l, Raw: d.Raw})
		}
	})
}

func (m *member) DeadLetters(_ context.Context, deadLetters []ingestq.DeadLetter) error {
	return m.do("dead letters", func(c *Content) {
		for _, l := range deadLetters {
			c.DeadLetters = append(c.DeadLetters, ingestq.StoredDeadLetter{DeadLetter: l})
		}
	})
}

func (m *member) Watermark(context.Context) (w ingestq.Watermark, err error) {
	err = m.do("watermark", func(c *Content) {
		w.Now = c.clock()
		waits := func(e *Entry) bool { return e.Consumer == "" || m.q.opts.Commits && !e.Done }
		if i := slices.IndexFunc(c.Entries, waits); i >= 0 {
			w.At = c.Entries[i].added
		}
	})
	return w, err
}

func (m *member) Stats(context.Context) (s ingestq.Stats, err error) {
	err = m.do("stats", func(c *Content) {
		if s.Length = int64(len(c.Entries)); c.Entries == nil {
			s.Lag = -1
		}
		for _, e := range c.Entries {
			if e.Consumer == "" {
				s.Lag++
			} else if !e.Done {
				s.Pending++
			}
		}
	})
	return s, err
}

func (m *member) Run(ctx context.Context) error {
	<-ctx.Done()
	m.q.Change(func(c *Content) { delete(c.Alive, m.name) })
	return nil
}

func (m *member) Publish(_ context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	ids, errs := make([]string, len(envelopes)), make([]error, len(envelopes))
	err := m.do("publish", func(c *Content) {
		for i, e := range envelopes {
			ids[i], errs[i] = c.publish(e)
		}
	})
	return ids, errors.Join(append(errs, err)...)
}

func (m *member) Requeue(_ context.Context, copies []ingestq.Copy) (n int, err error) {
	errs := make([]error, len(copies))
	err = m.do("requeue", func(c *Content) {
		for i, one := range copies {
			if e := c.Held(one.ID); e != nil {
				if _, errs[i] = c.publish(one.Envelope); errs[i] == nil {
					e.Done, n = true, n+1
				}
			}
		}
	})
	return n, errors.Join(append(errs, err)...)
}

func (m *member) Adopt(_ context.Context, ids ...string) (found map[string]bool, err error) {
	found = make(map[string]bool, len(ids))
	err = m.do("adopt", func(c *Content) {
		for _, id := range ids {
			e := c.Held(id)
			if found[id] = e != nil && !e.Gone; found[id] {
				e.Give(m.name)
			} else if e != nil {
				e.Done = true // what is gone is pending no more
			}
		}
	})
	return found, err
}

func (m *member) Pending(_ context.Context, idle time.Duration, after string, n int) (out []ingestq.Pending, err error) {
	err = m.do("pending", func(c *Content) {
		for _, e := range c.Entries {
			p := e.Pending
			p.Alive, p.Idle = c.Alive[p.Consumer], time.Since(e.given)
			if p.Consumer != "" && !e.Done && p.Idle >= idle && p.ID > after && len(out) < n {
				out = append(out, p)
			}
		}
	})
	return out, err
}

func (m *member) Trim(context.Context) (removed int64, err error) {
	err = m.do("trim", func(c *Content) {
		for ; len(c.Entries) > 0 && c.Entries[0].Done; removed++ {
			c.Entries = c.Entries[1:]
		}
	})
	return removed, err
}
