package taskrun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// memStream is a stream with one group in memory; members of it are memQueues.
type memStream struct {
	mu      sync.Mutex
	seq     int
	entries []memEntry // not deleted, in id order
	next    int        // index of the first that nobody was given
	pending map[string]*memPending
	dead    []ingestq.DeadLetter
	raw     []ingestq.Delivery // quarantined
	acked   []string
	added   int
	alive   map[string]bool
	changed chan struct{}
	skew    time.Duration // the queue's clock is ahead of the database's by it
	trims   int
	fault   func(op string) error
	// records: it is a topic of one partition; calls that a topic has no use for are noted.
	records bool
	useless []string
}

type memEntry struct {
	id  string
	at  time.Time
	env *pb.TaskEnvelope // nil: undecodable
}

type memPending struct {
	entry    memEntry
	consumer string
	since    time.Time
	count    int64
	gone     bool
}

func newMemStream() *memStream {
	return &memStream{pending: map[string]*memPending{}, alive: map[string]bool{}, changed: make(chan struct{})}
}

func (s *memStream) clock() time.Time { return instant().Add(s.skew) }

// add adds an entry; s.mu is held.
func (s *memStream) add(env *pb.TaskEnvelope) string {
	s.seq++
	e := memEntry{id: fmt.Sprintf("%015d-%05d", s.clock().UnixMilli(), s.seq), at: s.clock(), env: env}
	s.entries = append(s.entries, e)
	s.added++
	close(s.changed)
	s.changed = make(chan struct{})
	return e.id
}

// send adds a delivery for a task from outside.
func (s *memStream) send(taskID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(&pb.TaskEnvelope{TaskId: taskID})
}

// garbage adds an entry that nobody can decode.
func (s *memStream) garbage() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(nil)
}

// give hands an entry for a task to a member, as if it had read it.
func (s *memStream) give(taskID, consumer string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.add(&pb.TaskEnvelope{TaskId: taskID})
	e := s.entries[len(s.entries)-1]
	s.entries = s.entries[:len(s.entries)-1]
	s.pending[id] = &memPending{entry: e, consumer: consumer, since: instant(), count: 1}
	return id
}

// flush is FLUSHALL.
func (s *memStream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.next = nil, 0
	clear(s.pending)
}

func (s *memStream) setFault(f func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// deadLetters returns the dead letters.
func (s *memStream) deadLetters() []ingestq.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.dead)
}

func (s *memStream) isPending(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[id] != nil
}

func (s *memStream) counts() (waiting, pending, added, deadLetters int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries) - s.next, len(s.pending), s.added, len(s.dead)
}

// member joins the group.
func (s *memStream) member(name string) *memQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive[name] = true
	return &memQueue{s: s, name: name}
}

// memQueue is one member.
type memQueue struct {
	s    *memStream
	name string
}

func (q *memQueue) Name() string { return q.name }

func (q *memQueue) Transport() ingestq.Transport { return ingestq.Transport{Pending: !q.s.records} }

func (q *memQueue) enter(op string) error {
	q.s.mu.Lock()
	fault := q.s.fault
	if q.s.records && slices.Contains([]string{"publish", "adopt", "requeue", "pending", "letters", "letgo", "trim"}, op) {
		q.s.useless = append(q.s.useless, op)
	}
	q.s.mu.Unlock()
	if fault == nil {
		return nil
	}
	if err := fault(op); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func (q *memQueue) Publish(_ context.Context, es []*pb.TaskEnvelope) ([]string, error) {
	if err := q.enter("publish"); err != nil {
		return nil, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	var ids []string
	for _, e := range es {
		ids = append(ids, q.s.add(e))
	}
	return ids, nil
}

func (q *memQueue) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	if err := q.enter("read"); err != nil {
		return nil, err
	}
	timer := time.NewTimer(block)
	defer timer.Stop()
	for {
		q.s.mu.Lock()
		var out []ingestq.Delivery
		for len(out) < n && q.s.next < len(q.s.entries) {
			e := q.s.entries[q.s.next]
			q.s.next++
			q.s.pending[e.id] = &memPending{entry: e, consumer: q.name, since: instant(), count: 1}
			out = append(out, delivery(e))
		}
		changed := q.s.changed
		q.s.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func delivery(e memEntry) ingestq.Delivery {
	if e.env == nil {
		return ingestq.Delivery{ID: e.id, Raw: map[string]string{"x": "y"}, Err: fmt.Errorf("not an envelope")}
	}
	return ingestq.Delivery{ID: e.id, Envelope: e.env}
}

// drop acknowledges; s.mu is held.
func (s *memStream) drop(id string) bool {
	if s.pending[id] == nil {
		return false
	}
	delete(s.pending, id)
	s.acked = append(s.acked, id)
	return true
}

func (q *memQueue) Ack(_ context.Context, ids ...string) error {
	if err := q.enter("ack"); err != nil {
		return err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	for _, id := range ids {
		q.s.drop(id)
	}
	return nil
}

func (q *memQueue) Adopt(_ context.Context, ids ...string) (map[string]bool, error) {
	if err := q.enter("adopt"); err != nil {
		return nil, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	found := map[string]bool{}
	for _, id := range ids {
		if p := q.s.pending[id]; p != nil {
			p.consumer, p.since, found[id] = q.name, instant(), true
		}
	}
	return found, nil
}

func (q *memQueue) Requeue(_ context.Context, copies []ingestq.Copy) (int, error) {
	if err := q.enter("requeue"); err != nil {
		return 0, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	n := 0
	for _, c := range copies {
		if q.s.drop(c.ID) {
			q.s.add(c.Envelope)
			n++
		}
	}
	return n, nil
}

func (q *memQueue) Pending(_ context.Context, minIdle time.Duration, after string, n int) ([]ingestq.Pending, error) {
	if err := q.enter("pending"); err != nil {
		return nil, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	var out []ingestq.Pending
	for id, p := range q.s.pending {
		idle := instant().Sub(p.since)
		if idle < minIdle || id <= after {
			continue
		}
		d := delivery(p.entry)
		if p.gone {
			d = ingestq.Delivery{ID: id}
		}
		out = append(out, ingestq.Pending{
			Delivery: d, Consumer: p.consumer, Alive: q.s.alive[p.consumer], Idle: idle, Deliveries: p.count, Gone: p.gone,
		})
	}
	slices.SortFunc(out, func(a, b ingestq.Pending) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(n, len(out))], nil
}

func (q *memQueue) Quarantine(_ context.Context, d ingestq.Delivery) error {
	if err := q.enter("quarantine"); err != nil {
		return err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if q.s.drop(d.ID) {
		q.s.raw = append(q.s.raw, d)
	}
	return nil
}

func (q *memQueue) DeadLetters(_ context.Context, ls []ingestq.DeadLetter) error {
	if err := q.enter("letters"); err != nil {
		return err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.s.dead = append(q.s.dead, ls...)
	return nil
}

func (q *memQueue) Unpin(_ context.Context, idle time.Duration, ids ...string) error {
	if err := q.enter("letgo"); err != nil {
		return err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	for _, id := range ids {
		if p := q.s.pending[id]; p != nil && instant().Sub(p.since) >= idle {
			q.s.drop(id)
		}
	}
	return nil
}

func (q *memQueue) Trim(context.Context) (int64, error) {
	if err := q.enter("trim"); err != nil {
		return 0, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.s.trims++
	return 0, nil
}

func (q *memQueue) Watermark(context.Context) (ingestq.Watermark, error) {
	if err := q.enter("horizon"); err != nil {
		return ingestq.Watermark{}, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	h := ingestq.Watermark{Now: q.s.clock()}
	if q.s.next < len(q.s.entries) {
		h.At = q.s.entries[q.s.next].at
	}
	if q.s.records { // the first that is not finished, whoever has it
		for _, p := range q.s.pending {
			if h.At.IsZero() || p.entry.at.Before(h.At) {
				h.At = p.entry.at
			}
		}
	}
	return h, nil
}

func (q *memQueue) Stats(context.Context) (ingestq.Stats, error) {
	if err := q.enter("stats"); err != nil {
		return ingestq.Stats{}, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return ingestq.Stats{Length: int64(len(q.s.entries)), Pending: int64(len(q.s.pending)), Lag: int64(len(q.s.entries) - q.s.next)}, nil
}

func (q *memQueue) Run(ctx context.Context) error {
	<-ctx.Done()
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	delete(q.s.alive, q.name)
	return nil
}

func (q *memQueue) Ping(context.Context) error { return q.enter("ping") }

// rebalance gives what is not finished to be read again.
func (s *memStream) rebalance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pending {
		s.entries = append(s.entries, p.entry)
	}
	clear(s.pending)
	close(s.changed)
	s.changed = make(chan struct{})
}
