package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	firstRedial  = 250 * time.Millisecond
	mostRedial   = 30 * time.Second
	standbyEvery = time.Second // how often one that stands by tries to act
	renewEvery   = leaseTime / 3
	logEvery     = time.Minute // of a line that is repeated
)

// errStandby says that another mirror has the lease.
var errStandby = errors.New("another stream-mirror acts")

// Deps are the parts of a Mirror.
type Deps struct {
	DB      taskstate.Database
	Name    string // of the connection, for people who look at RabbitMQ
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: counted and not shown
	Clock   func() time.Time      // with a monotonic reading
}

// Mirror keeps a copy of every unfinished task in RabbitMQ. Any number may run; one acts.
type Mirror struct {
	cfg     Config
	d       Deps
	name    string // of this start, as the lease has it
	rows    *rows
	log     *telemetry.Repeated
	metrics *metrics

	mu      sync.Mutex
	problem error  // why it does not act or stand by; nil: it does
	warning string // what a person has to look at although it works
	audit   string // the same of the audit stream
}

// New checks its settings.
func New(cfg Config, d Deps) (*Mirror, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.DB == nil || d.Log == nil || d.Clock == nil {
		return nil, errors.New("mirror: a database, a logger and a clock are needed")
	}
	m := &Mirror{
		cfg: cfg, d: d, name: ingestq.MemberName(), rows: newRows(d.DB), log: telemetry.NewRepeated(d.Log, logEvery, d.Clock), metrics: newMetrics(d.Metrics, d.Clock),
		problem: errors.New("not connected yet"),
	}
	if d.Metrics != nil && len(cfg.MetricsURLs) > 0 {
		telemetry.Register[prometheus.Collector](d.Metrics, newBrokers(cfg, m.log))
	}
	return m, nil
}

// Health returns why the mirror does not work, or nil and what a person has to look at; empty: nothing.
func (m *Mirror) Health() (warning string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.warning != "" && m.audit != "" {
		return m.warning + "; " + m.audit, m.problem
	}
	return m.warning + m.audit, m.problem
}

// setAudit says what a person has to look at of the audit stream; empty: nothing.
func (m *Mirror) setAudit(warning string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.audit = warning
}

func (m *Mirror) set(warning string, problem error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warning, m.problem = warning, problem
}

// Run mirrors until ctx ends. Connections that fail are made again, after a pause that doubles from 250 ms up to 30 s.
func (m *Mirror) Run(ctx context.Context) error {
	wait := pause.Backoff{First: firstRedial, Most: mostRedial}
	for {
		worked, err := m.connected(ctx)
		m.metrics.gauges.show(nil)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx ends the connection too
		}
		if worked {
			wait.Reset()
		}
		if errors.Is(err, errStandby) {
			m.d.Log.Warn("mirror: acts no more", slog.String("reason", err.Error()))
			continue
		}
		m.set("", err)
		m.metrics.count([]sent{{result: failed}})
		m.log.Log(ctx, slog.LevelWarn, "connection", "mirror: no connection; tasks run on without copies",
			slog.String("event", "rabbit.enqueue_failed"), slog.String("error", telemetry.Redact(err.Error())))
		if !pause.For(ctx, wait.Next()) {
			return nil
		}
	}
}

// connected works on one connection until that or ctx ends; worked says that it has acted or stood by.
func (m *Mirror) connected(ctx context.Context) (worked bool, err error) {
	l, err := dial(ctx, m.cfg, m.d.Name)
	if err != nil {
		return false, err
	}
	closed := l.closed()
	defer func() {
		l.close()
		m.leave(ctx)
	}()
	if worked, err = m.standBy(ctx, closed); err != nil || ctx.Err() != nil {
		return worked, err
	}
	warning, err := l.declare()
	if err != nil {
		return worked, err
	}
	s, err := m.session(l, warning)
	if err != nil {
		return worked, err
	}
	if warning != "" {
		m.d.Log.Warn("mirror: topology", slog.String("problem", warning))
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case reason := <-closed:
			return ended(reason)
		case <-groupCtx.Done():
			return nil
		}
	})
	group.Go(func() error { return m.renew(groupCtx) })
	group.Go(func() error { return newPublisher(s).run(groupCtx) })
	group.Go(func() error { return newDrainer(s).run(groupCtx) })
	if m.cfg.AuditStream != "" {
		group.Go(func() error { return (&auditor{Mirror: m}).run(groupCtx) })
	}
	err = group.Wait()
	return worked || s.acted.Load(), err
}

// ended says why a connection ended.
func ended(reason *amqp.Error) error {
	if reason == nil {
		return errors.New("the connection was closed")
	}
	return fmt.Errorf("the connection ended: %w", reason)
}

// standBy returns when this mirror has the lease, or with ctx; worked says that it has stood by. Its error is the connection's.
func (m *Mirror) standBy(ctx context.Context, closed <-chan *amqp.Error) (worked bool, err error) {
	again := time.NewTicker(standbyEvery)
	defer again.Stop()
	for {
		switch holder, err := m.rows.take(ctx, m.name); {
		case err != nil:
			m.databaseAway(ctx, err)
			m.set("", err)
		case holder == m.name:
			return worked, nil
		default:
			worked = true
			m.set(fmt.Sprintf("stands by: the stream-mirror %s acts", holder), nil)
			m.log.Log(ctx, slog.LevelInfo, "standby", "mirror: stands by", slog.String("acts", holder))
		}
		select {
		case reason := <-closed:
			return worked, ended(reason)
		case <-ctx.Done():
			return worked, nil
		case <-again.C:
		}
	}
}

// renew keeps the lease until ctx ends. errStandby: another mirror has it. While the database is away nobody gets it.
func (m *Mirror) renew(ctx context.Context) error {
	for pause.For(ctx, renewEvery) {
		holder, err := m.rows.take(ctx, m.name)
		if err != nil {
			m.databaseAway(ctx, err)
		} else if holder != m.name {
			return fmt.Errorf("%w: %s, which took the lease after it had ended", errStandby, holder)
		}
	}
	return nil
}

// leave ends the lease, so that another mirror acts at once; without a database, when it has ended by itself.
func (m *Mirror) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := m.rows.leave(ctx, m.name); err != nil {
		m.databaseAway(ctx, err)
	}
}

// acts says that the queue has answered.
func (s *session) acts() {
	if !s.acted.Swap(true) {
		s.log.Reset("standby")
		s.log.Reset("connection")
		s.d.Log.Info("mirror: goes round the queue", slog.String("queue", s.cfg.Queue))
		s.set(s.topology, nil)
	}
}

// session is what publisher and drainer of one connection share.
type session struct {
	*Mirror
	link      *link
	topology  string   // what of it is not as it should be; empty: nothing
	publish   *channel // the publisher's
	drain     *channel // the drainer's
	name      string   // part of the marks of this connection
	connected time.Time
	known     *known
	acted     atomic.Bool // the queue has answered

	publishing sync.RWMutex  // held to read while batches are under way: a round begins when none is
	wake       chan struct{} // an ended task has a copy
	ready      atomic.Int64  // copies in the queue, as of the last look
	unknown    atomic.Int64  // copies without a row, of the last round
}

// session opens the channels of a connection.
func (m *Mirror) session(l *link, topology string) (*session, error) {
	publish, err := l.channel(m.cfg.Exchange, m.cfg.RoutingKey)
	if err != nil {
		return nil, err
	}
	drain, err := l.channel(m.cfg.Exchange, m.cfg.RoutingKey)
	if err != nil {
		return nil, err
	}
	return &session{
		Mirror: m, link: l, topology: topology, publish: publish, drain: drain, name: uuid.NewString(), connected: m.d.Clock(), known: newKnown(),
		wake: make(chan struct{}, 1),
	}, nil
}

// mark is the correlation id of what is published in the present round.
func (s *session) mark() string { return fmt.Sprintf("%s.%d", s.name, s.known.current()) }

// ended asks for a round: a task that has ended has a copy.
func (s *session) ended() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// bindAgain makes what is missing of the topology after a Return.
func (s *session) bindAgain(ctx context.Context) error {
	s.log.Log(ctx, slog.LevelWarn, "returned", "mirror: copies came back, no queue is bound; declares and binds again")
	_, err := s.link.declare()
	return err
}

// note logs what happened to messages that were not confirmed.
func (s *session) note(ctx context.Context, all []sent) {
	s.metrics.count(all)
	n, first := map[result]int{}, map[result]string{}
	for _, one := range all {
		if n[one.result]++; n[one.result] == 1 {
			first[one.result] = one.reason
		}
	}
	for result, event := range map[result]string{timedOut: "rabbit.publisher_timeout", failed: "rabbit.enqueue_failed", refused: "rabbit.refused"} {
		if n[result] > 0 {
			s.log.Log(ctx, slog.LevelWarn, event, "mirror: copies without a confirm", slog.String("event", event), slog.Int("copies", n[result]),
				slog.String("error", telemetry.Redact(first[result])))
		}
	}
}

// databaseAway logs that the database does not answer.
func (m *Mirror) databaseAway(ctx context.Context, err error) {
	if ctx.Err() == nil {
		m.log.Log(ctx, slog.LevelWarn, "database", "mirror: the database is away", slog.String("error", telemetry.Redact(err.Error())))
	}
}
