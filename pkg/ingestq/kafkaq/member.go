// Package kafkaq carries deliveries over Kafka: the consumer of the group (ingestq.Consumer), the producer of the relay
// (outbox.Sender), and the making of topics.
//
// Kafka only says "look at this task". A record's offset is committed once it was acknowledged and all before it were: what was
// read and not acknowledged comes again after a crash or a rebalance, and answers skipped, busy or not due (design D4).
// Deliveries are written by the outbox's relay alone, so Publish and all that moves pending entries do nothing here.
//
// Nothing in it needs a broker that answers: clients are made at once and connect when they are used (design D16).
package kafkaq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/ingestq"
)

// Member is one member of the group. It joins with its first Read and while Run runs; a process that never reads, such as a
// reclaimer, takes no partition from those that do. It is safe for concurrent use.
type Member struct {
	*Client
	producer *Producer
	log      *slog.Logger
	now      func() time.Time
	metrics  *Metrics
	name     string

	wanted    chan struct{} // a signal: a Read began while the member rested
	arrived   chan struct{} // a signal: records came, or the state of the session changed
	runAtOnce sync.Mutex    // Run is one at a time

	mu     sync.Mutex
	rests  bool               // nothing was read yet, or since Yield
	leave  context.CancelFunc // ends the session; nil: there is none
	parts  map[int32]*part
	turn   int   // whose records are given out first
	fault  error // why there is no session; nil while there is one or nobody knows yet
	paused func(partition int32, on bool)
	clock  ahead
}

var (
	_ ingestq.Consumer = (*Member)(nil)
	_ ingestq.Yielder  = (*Member)(nil)
)

// New makes a member with a name that no other start of any process has. The producer writes what cannot be decoded to the
// topic of dead letters; client and producer stay the caller's.
func New(client *Client, producer *Producer, log *slog.Logger, now func() time.Time, metrics *Metrics) *Member {
	metrics.forTopic(client.cfg.Topic)
	return &Member{
		Client: client, producer: producer, log: log, now: now, metrics: metrics, name: ingestq.MemberName(),
		wanted: make(chan struct{}, 1), arrived: make(chan struct{}, 1), parts: map[int32]*part{}, rests: true,
	}
}

// Name implements ingestq.Consumer.
func (m *Member) Name() string { return m.name }

// Destination implements ingestq.Described.
func (m *Member) Destination(string) (system, name string) { return "kafka", m.cfg.Topic }

// Read implements ingestq.Consumer.
func (m *Member) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	m.wake()
	timer := time.NewTimer(block)
	defer timer.Stop()
	for {
		out, fault := m.give(max(1, n))
		if len(out) > 0 {
			m.ring() // another Read may wait for what is left
			return out, nil
		}
		select {
		case <-m.arrived:
		case <-ctx.Done():
			return nil, failure(ctx, "read "+m.cfg.Topic, ctx.Err())
		case <-timer.C:
			// A fault has lasted for the whole wait, so a caller that only loops does not spin.
			return nil, failure(ctx, "read "+m.cfg.Topic, fault)
		}
	}
}

// wake lets the member take part again if it rested.
func (m *Member) wake() {
	m.mu.Lock()
	rested := m.rests
	m.rests = false
	m.mu.Unlock()
	if rested {
		select {
		case m.wanted <- struct{}{}:
		default:
		}
	}
}

// Yield implements ingestq.Yielder: the member leaves the group, until the next Read. What it was given and has not acknowledged comes to
// the next owner of its partitions, who finds the task claimed or ended.
func (m *Member) Yield() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rests = true
	if m.leave != nil {
		m.leave()
	}
}

// ring wakes one Read; rings come together.
func (m *Member) ring() {
	select {
	case m.arrived <- struct{}{}:
	default:
	}
}

// give takes at most n records out of the partitions, evenly.
func (m *Member) give(n int) ([]ingestq.Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var out []ingestq.Delivery
	for _, p := range m.inTurn() {
		share := max(1, n/len(m.parts))
		out = append(out, p.take(min(share, n-len(out)), now)...)
	}
	for _, p := range m.inTurn() { // what others left unused
		out = append(out, p.take(n-len(out), now)...)
	}
	m.turn++
	for _, p := range m.parts {
		m.brake(p)
	}
	return out, m.fault
}

// inTurn lists the partitions, beginning with another one each time.
func (m *Member) inTurn() []*part {
	all := slices.SortedFunc(maps.Values(m.parts), func(a, b *part) int { return int(a.partition - b.partition) })
	first := m.turn % max(1, len(all))
	return slices.Concat(all[first:], all[:first])
}

// Ack implements ingestq.Consumer: it marks the records as finished, and lets the contiguous prefix be committed.
// Records of partitions that this member does not have any more are their new owner's.
func (m *Member) Ack(_ context.Context, ids ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		at, ok := parseID(id)
		if !ok {
			continue
		}
		p := m.parts[at.partition]
		if p == nil {
			continue
		}
		if commit, moved := p.window.finish(at.offset); moved {
			p.commit(commit)
			m.brake(p)
		}
	}
	return nil
}

// Stats implements ingestq.Consumer; Pending is what this member was given and has not acknowledged.
func (m *Member) Stats(ctx context.Context) (ingestq.Stats, error) {
	out, err := m.Client.Stats(ctx)
	if err != nil {
		return out, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.parts {
		out.Pending += int64(p.window.unfinished() - len(p.waiting))
	}
	return out, nil
}

// Ping implements ingestq.Consumer: the broker answers, and a member that reads is in the group.
func (m *Member) Ping(ctx context.Context) error {
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if fault != nil {
		return failure(ctx, "join group "+m.cfg.Group, fault)
	}
	return m.Client.Ping(ctx)
}

const (
	// quarantineAgain is the pause before a record that could not be put away is given out once more.
	quarantineAgain = time.Second
	// quarantineMax is what is kept of a record that the topic of dead letters does not take whole.
	quarantineMax = 64 << 10
)

// Quarantine implements ingestq.Consumer. What could not be written is read again after a moment, so that its partition's
// offset does not wait for the next start.
func (m *Member) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	at, ok := parseID(d.ID)
	if !ok {
		return nil
	}
	if err := m.putAway(ctx, d, at); err != nil {
		m.again(d, at)
		return failure(ctx, "quarantine "+d.ID, err)
	}
	m.metrics.deadLetters.Inc()
	m.metrics.quarantined.WithLabelValues(m.cfg.Topic).Inc()
	return m.Ack(ctx, d.ID)
}

// putAway writes the record; one that is too large with what we add to it is cut.
func (m *Member) putAway(ctx context.Context, d ingestq.Delivery, at place) error {
	record := quarantined(d, m.cfg.Topic, m.cfg.DLQTopic(), at)
	err := m.producer.send(ctx, []*sarama.ProducerMessage{record})[0]
	if !namesRecord(err) {
		return err
	}
	whole := d.Raw[rawValue]
	cut := ingestq.Delivery{Raw: map[string]string{
		rawValue: whole[:min(len(whole), quarantineMax)], rawError: fmt.Sprintf("cut from %d bytes: %s", len(whole), d.Raw[rawError]),
	}}
	return m.producer.send(ctx, []*sarama.ProducerMessage{quarantined(cut, m.cfg.Topic, m.cfg.DLQTopic(), at)})[0]
}

// again gives a record out once more, if its partition is still ours.
func (m *Member) again(d ingestq.Delivery, at place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parts[at.partition]
	if p == nil || !p.window.holds(at.offset) {
		return
	}
	p.waiting = append(p.waiting, record{
		notBefore: m.now().Add(quarantineAgain),
		message: &sarama.ConsumerMessage{
			Topic: m.cfg.Topic, Partition: at.partition, Offset: at.offset, Key: []byte(d.Raw[rawKey]), Value: []byte(d.Raw[rawValue]),
		},
	})
}
