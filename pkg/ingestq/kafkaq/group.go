package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/pause"
)

const (
	commitInterval = 250 * time.Millisecond // what a crash reads again at most, besides what was not finished
	joinFirstPause = 100 * time.Millisecond // after a session that failed, doubled with each one in a row
	joinMaxPause   = 5 * time.Second
	fetchWait      = 250 * time.Millisecond // longest wait of a broker for more records
	// rebalanceTime is how long members have to come back to a rebalance. A member of ours does at its next heartbeat.
	rebalanceTime = 20 * time.Second
	startTries    = 3 // of committing where a partition starts
)

// Run implements ingestq.Consumer: it keeps the member in the group from its first Read on until ctx ends, and leaves then; between Yield
// and the next Read it is out.
// No answer of a broker ends it.
func (m *Member) Run(ctx context.Context) error {
	m.runAtOnce.Lock()
	defer m.runAtOnce.Unlock()
	wait := pause.Backoff{First: joinFirstPause, Most: joinMaxPause}
	for ctx.Err() == nil {
		session, leave, rests := m.enter(ctx)
		if rests {
			select {
			case <-m.wanted:
			case <-ctx.Done():
			}
			continue
		}
		began := m.now()
		err := m.session(session)
		m.drop()
		if session.Err() != nil { // it was ended by ctx, or by Yield
			wait.Reset()
			continue
		}
		leave()
		if err == nil || m.now().Sub(began) > joinMaxPause {
			wait.Reset() // it was in the group for a while
		}
		next := wait.Next()
		m.failed(ctx, err, next)
		pause.For(ctx, next)
	}
	return nil
}

// enter makes the context of a session, which Yield ends; there is none while the member rests.
func (m *Member) enter(ctx context.Context) (session context.Context, leave context.CancelFunc, rests bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rests {
		m.fault = nil // it is not to be in the group
		return nil, nil, true
	}
	session, m.leave = context.WithCancel(ctx)
	return session, m.leave, false
}

// failed says why there is no session.
func (m *Member) failed(ctx context.Context, err error, next time.Duration) {
	if err == nil {
		err = errLeft
	} else {
		m.metrics.failures.WithLabelValues(m.cfg.Topic).Inc()
		m.log.WarnContext(ctx, "kafka: not in the group", slog.Any("error", err), slog.Duration("next_try", next))
	}
	m.mu.Lock()
	m.fault = err
	m.mu.Unlock()
	m.ring()
}

// errLeft is the state between two sessions.
var errLeft = errors.New("joining the group again")

// session is one stay in the group. With cooperative rebalancing it lasts while others come and go.
func (m *Member) session(ctx context.Context) error {
	cfg := m.cfg.client()
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.MaxWaitTime = fetchWait
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest // the library's default would skip what was sent before the first member
	cfg.Consumer.Offsets.AutoCommit.Interval = commitInterval
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	cfg.Consumer.Group.Rebalance.Timeout = rebalanceTime
	cfg.Net.ReadTimeout = rebalanceTime + callTimeout // who joins is answered when the others have come back
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	if m.cfg.SessionTimeout > 0 {
		cfg.Consumer.Group.Session.Timeout, cfg.Consumer.Group.Heartbeat.Interval = m.cfg.SessionTimeout, m.cfg.SessionTimeout/4
	}
	group, err := sarama.NewConsumerGroup(m.cfg.Brokers, m.cfg.Group, cfg)
	if err != nil {
		return fmt.Errorf("start a member: %w", err)
	}
	m.mu.Lock()
	m.paused = func(partition int32, on bool) {
		which := map[string][]int32{m.cfg.Topic: {partition}}
		if on {
			group.Pause(which)
		} else {
			group.Resume(which)
		}
	}
	m.mu.Unlock()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for err := range group.Errors() {
			m.log.WarnContext(ctx, "kafka: consumer", slog.Any("error", err))
		}
	}()
	err = group.Consume(ctx, []string{m.cfg.Topic}, handler{m})
	if closeErr := group.Close(); closeErr != nil && err == nil && ctx.Err() == nil {
		err = closeErr
	}
	<-heard
	return err
}

// drop forgets the partitions of a session that ended.
func (m *Member) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.parts)
	m.paused, m.leave = nil, nil
}

// handler is what the library calls. Setup and Cleanup come once a session, ConsumeClaim for each partition.
type handler struct{ m *Member }

// Setup implements sarama.ConsumerGroupHandler.
func (h handler) Setup(sarama.ConsumerGroupSession) error {
	h.m.mu.Lock()
	h.m.fault = nil
	h.m.mu.Unlock()
	h.m.metrics.joined.WithLabelValues(h.m.cfg.Topic).Inc()
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim implements sarama.ConsumerGroupHandler. It never waits for a task, so that the group's rules about time hold
// however long tasks are.
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m := h.m
	goOn, err := m.begin(session, claim)
	if err != nil || !goOn {
		return err
	}
	p := &part{partition: claim.Partition()}
	p.commit = func(offset int64) { session.MarkOffset(m.cfg.Topic, p.partition, offset, "") }
	m.mu.Lock()
	m.parts[p.partition] = p
	m.mu.Unlock()
	defer m.lose(p)
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			m.keep(p, message)
		case <-session.Context().Done():
			return nil
		}
	}
}

// lose forgets a partition, unless it was given to us again meanwhile.
func (m *Member) lose(p *part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts[p.partition] == p {
		delete(m.parts, p.partition)
	}
}

// keep takes a record that came.
func (m *Member) keep(p *part, message *sarama.ConsumerMessage) {
	m.mu.Lock()
	p.window.add(message.Offset)
	p.waiting = append(p.waiting, record{message: message})
	m.clock.see(message.Timestamp, m.now())
	m.brake(p)
	m.mu.Unlock()
	m.ring()
}

// brake pauses a partition of which too much waits, and lets it go on. The caller holds the lock.
func (m *Member) brake(p *part) {
	if full := p.full(); full != p.paused && m.paused != nil {
		p.paused = full
		m.paused(p.partition, full)
	}
}

// begin makes sure that the group has a committed offset inside the log before a record of the partition is handled.
// The library itself only starts at the oldest record when there is none or the log does not have it; what that was is asked
// here. An offset beyond the log's end belongs to a topic that was lost: it is set to the end, and what was lost is found in
// the table (design D5).
func (m *Member) begin(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) (goOn bool, err error) {
	if claim.InitialOffset() >= 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(session.Context(), callTimeout)
	defer cancel()
	at, err := m.border(ctx, claim.Partition())
	if err != nil {
		return false, fmt.Errorf("read where partition %d starts: %w", claim.Partition(), err)
	}
	switch {
	case at.Committed > at.Newest:
		return false, m.reset(ctx, session, at, at.Newest) // and the next session starts there
	case at.Committed < at.Oldest:
		return true, m.reset(ctx, session, at, at.Oldest)
	default:
		return false, nil // it was committed meanwhile
	}
}

// border reads one partition's.
func (m *Member) border(ctx context.Context, partition int32) (border, error) {
	all, err := m.borders(ctx, []int32{partition})
	if err != nil {
		return border{}, err
	}
	return all[0], nil
}

// reset commits where a partition starts and looks whether that came through: the library does not tell.
func (m *Member) reset(ctx context.Context, session sarama.ConsumerGroupSession, at border, to int64) error {
	if at.Committed >= 0 {
		m.metrics.resets.WithLabelValues(m.cfg.Topic).Inc()
		m.log.WarnContext(ctx, "kafka: committed offset is outside the log", slog.Int("partition", int(at.Partition)),
			slog.Int64("committed", at.Committed), slog.Int64("oldest", at.Oldest), slog.Int64("newest", at.Newest), slog.Int64("set_to", to))
	}
	for range startTries {
		session.ResetOffset(m.cfg.Topic, at.Partition, to, "") // where it is to go back
		session.MarkOffset(m.cfg.Topic, at.Partition, to, "")  // where it is to go on
		session.Commit()
		now, err := m.border(ctx, at.Partition)
		if err == nil && now.Committed == to {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("commit offset %d of partition %d: the group does not have it", to, at.Partition)
}
