package outbox

import (
	"errors"
	"fmt"
	"time"
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
	check(c.Sender >= 1 && c.Sender <= 16, "lanes: %d is not 1–16", c.Sender)
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
