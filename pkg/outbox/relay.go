package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

// Config is what an operator sets of a relay.
type Config struct {
	MaxAttempts int           // INGEST_KAFKA_MAX_ATTEMPTS: failed attempts after which an event is DEAD
	BaseBackoff time.Duration // INGEST_KAFKA_RETRY_BASE_BACKOFF_MS: wait after the first failed attempt, doubled after each
	MaxBackoff  time.Duration // INGEST_KAFKA_RETRY_MAX_BACKOFF_MS
	BatchSize   int           // INGEST_KAFKA_PUBLISH_BATCH_SIZE: most events of one Send
	Interval    time.Duration // INGEST_KAFKA_PUBLISH_INTERVAL_MS: longest pause between two looks
	Lease       time.Duration // how long events are this relay's; a Send has half of it
	Sender      int           // turns at the same time while there is a backlog
	StopGrace   time.Duration // how long a stop waits for answers
	MarkTime    time.Duration // what the marks of a stop may take; 0: 5 s. What is not marked is sent again
	ProbeEvery  time.Duration // while events are DEAD for want of a broker
}

// NewDefaultConfig holds the defaults of contract §7.
func NewDefaultConfig() Config {
	return Config{
		MaxAttempts: 10, BaseBackoff: time.Second, MaxBackoff: 10 * time.Minute, BatchSize: 20, Interval: time.Second,
		Lease: 30 * time.Second, Sender: 2, StopGrace: 5 * time.Second, ProbeEvery: time.Second,
	}
}

// maxBatch is the most events of one Send: a statement has two lists of as many, and SQLite takes 32,766 arguments.
const maxBatch = 5000

// Validate returns every problem, joined; each begins with the variable's name.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxAttempts >= 1, "INGEST_KAFKA_MAX_ATTEMPTS: %d is not positive", c.MaxAttempts)
	check(c.BaseBackoff >= 0, "INGEST_KAFKA_RETRY_BASE_BACKOFF_MS: %s is negative", c.BaseBackoff)
	check(c.MaxBackoff >= 0, "INGEST_KAFKA_RETRY_MAX_BACKOFF_MS: %s is negative", c.MaxBackoff)
	check(c.BatchSize >= 1 && c.BatchSize <= maxBatch, "INGEST_KAFKA_PUBLISH_BATCH_SIZE: %d is not 1–%d", c.BatchSize, maxBatch)
	check(c.Interval > 0, "INGEST_KAFKA_PUBLISH_INTERVAL_MS: %s is not positive", c.Interval)
	check(c.Lease >= time.Second, "lease of events: %s is below 1 s", c.Lease)
	check(c.Sender >= 1 && c.Sender <= 16, "senders: %d is not 1–16", c.Sender)
	check(c.StopGrace >= 0, "stop grace: %s is negative", c.StopGrace)
	check(c.MarkTime >= 0, "time of a stop's marks: %s is negative", c.MarkTime)
	check(c.ProbeEvery > 0, "probes: %s is not positive", c.ProbeEvery)
	return errors.Join(errs...)
}

// backoff is the wait after so many failed attempts: min(base·2^(attempt−1), max) (contract §2).
func (c Config) backoff(attempt int) time.Duration {
	d := min(c.BaseBackoff, c.MaxBackoff)
	for i := 1; i < attempt && d > 0 && d < c.MaxBackoff; i++ {
		d = min(2*d, c.MaxBackoff)
	}
	return d
}

// judge decides what one answer makes of an event; its words are left to the caller.
func (c Config) judge(e Leased, token string, err error) Mark {
	m := Mark{Seq: e.Seq, Token: token, To: StatusSent, Cause: CauseNone}
	if err == nil {
		return m
	}
	var refused *RefusedError
	m.Attempt, m.Cause = e.AttemptCount+1, CauseUnavailable
	if errors.Is(err, ErrRefused) || e.Cause == CauseRefused {
		m.Cause = CauseRefused
	}
	late := errors.As(err, &refused) && refused.Late
	switch {
	case m.Attempt >= c.MaxAttempts, errors.Is(err, ErrRefused) && !late:
		m.To = StatusDead
	default:
		m.To, m.Wait = StatusRetrying, c.backoff(m.Attempt)
	}
	return m
}

// maxErrorText is the most characters of an event's last error.
const maxErrorText = 2000

// Deps are the parts of a relay.
type Deps struct {
	Store       *Store
	Sender      Sender
	DeadLetters string  // the topic of dead letters: what is sent there is counted as such; empty: nothing is
	Signal      *Signal // rung when this process wrote events; nil: found by looking
	Log         *slog.Logger
	Metrics     prometheus.Registerer // nil: counted and not shown
	Clock       func() time.Time      // with a monotonic reading
}

// Relay sends events: it leases some, hands them to the broker's client with no lock held, and writes down what became of
// them in the transaction that leases the next. Any number of relays share one outbox.
//
// One that dies between the broker's answer and the mark leaves its events leased; another sends them again after that, and
// the consumer's claim makes it harmless (design D1).
type Relay struct {
	cfg     Config
	d       Deps
	metrics *metrics
	log     *telemetry.Repeated
	retries *Signal // an event failed: the retry sender looks when it is due
	news    *Signal // events were revived
	help    *Signal // a lane found more than it could take
}

// NewRelay checks its settings.
func NewRelay(cfg Config, d Deps) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.Store == nil || d.Sender == nil || d.Log == nil || d.Clock == nil {
		return nil, errors.New("outbox: a relay needs a store, a sender, a logger and a clock")
	}
	if d.Signal == nil {
		d.Signal = NewSignal()
	}
	r := &Relay{
		cfg: cfg, d: d, metrics: newMetrics(d.Metrics), log: telemetry.NewRepeated(d.Log, time.Minute, d.Clock),
		retries: NewSignal(), news: NewSignal(), help: NewSignal(),
	}
	if d.Metrics != nil {
		telemetry.Register(d.Metrics, newCollector(d.Store, d.Log, d.Clock))
	}
	return r, nil
}

// Run sends until ctx ends; then it takes nothing more, waits for the answers that are under way, no longer than StopGrace,
// and writes them down.
func (r *Relay) Run(ctx context.Context) error {
	senders := []*sender{
		newSender(r, StatusNew, min(minPause, r.cfg.Interval), r.d.Signal, r.news),
		newSender(r, StatusRetrying, r.cfg.Interval, r.retries, nil), // it knows when the next is due
	}
	for range r.cfg.Sender - 1 {
		helper := newSender(r, StatusNew, 0, r.help, nil)
		helper.helper = true
		senders = append(senders, helper)
	}
	var wg sync.WaitGroup
	for _, l := range senders {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Go(func() { r.revive(ctx) })
	wg.Wait()
	return nil
}

// revive probes the broker while events are DEAD for want of one, and revives them whenever it answers: not only when it
// comes back, for another relay may mark one DEAD later, and die.
func (r *Relay) revive(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.ProbeEvery)
	defer ticker.Stop()
	for {
		if err := r.reviveOnce(ctx); err != nil && ctx.Err() == nil {
			r.trouble(ctx, "revive", "outbox: revive events", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reviveOnce looks, probes and revives all that died before the probe.
func (r *Relay) reviveOnce(ctx context.Context) error {
	if any, err := r.d.Store.Revivable(ctx); err != nil || !any {
		return err
	}
	probe, cancel := context.WithTimeout(ctx, r.sendTime())
	defer cancel()
	if err := r.d.Sender.Probe(probe); err != nil {
		return fmt.Errorf("the broker does not answer: %w", err)
	}
	total := 0
	for {
		n, err := r.d.Store.Revive(ctx, pageRows)
		total += n
		if n > 0 {
			r.metrics.revived.Add(float64(n))
			r.news.Ring()
		}
		if err != nil || n < pageRows {
			if total > 0 {
				r.d.Log.InfoContext(ctx, "outbox: the broker answers again, events were revived", slog.Int("events", total))
			}
			return err
		}
	}
}

// sendTime is how long one Send may take: its events are leased for longer.
func (r *Relay) sendTime() time.Duration { return r.cfg.Lease / 2 }

// trouble logs what does not work, one line a kind and minute, and returns the error as it is kept.
func (r *Relay) trouble(ctx context.Context, kind, message string, err error) string {
	text := errorText(err)
	r.log.Log(ctx, slog.LevelWarn, kind, message, slog.String("error", text))
	return text
}

// newToken names a lease: 24 characters.
func newToken() string { return strings.ToLower(rand.Text()[:24]) }

// errorText is an error as it is kept: without secrets, valid text, bounded.
func errorText(err error) string {
	return taskstate.Shorten(strings.ToValidUTF8(strings.ReplaceAll(telemetry.Redact(err.Error()), "\x00", ""), "�"), maxErrorText)
}
