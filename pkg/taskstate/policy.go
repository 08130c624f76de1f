package taskstate

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

const (
	// MaxErrorChars bounds lastError and errorMessage (contract §2).
	MaxErrorChars = 2000
	// dlqGrace is how long the process that set DEAD has to write the DLQ entry before a sweep does (design D3).
	dlqGrace = 10 * time.Second
	// A service that throttles without naming a time, or a short one, is asked again after 1 s, 2 s, 4 s … 1 min.
	throttleFloor = time.Second
	throttleStep  = time.Minute
	throttleMax   = time.Hour
	// enqueueMax bounds the pause between two promises of one lost delivery (design D3).
	enqueueMax = 5 * time.Minute
)

// Policy holds the settings that decisions depend on.
type Policy struct {
	BaseBackoff time.Duration // INGEST_REDIS_RETRY_BASE_BACKOFF_MS; 0 allowed
	MaxBackoff  time.Duration // INGEST_REDIS_RETRY_MAX_BACKOFF_MS; 0 allowed
	Lease       time.Duration // INGEST_LEASE_MS
	MaxCrashes  int           // INGEST_MAX_CRASHES, at least 2
	Slack       time.Duration // INGEST_PROMISE_SLACK_MS
	DLQ         bool          // a dead letter stream is set: DEAD owes it an entry; false on the Kafka transport
	// Jitter returns what part of the backoff is taken away, 0 ≤ x < 1; nil: none, and the formula of contract §2 holds exactly.
	Jitter func() float64
}

// Validate returns every problem of the policy, joined.
func (p Policy) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.BaseBackoff >= 0, "base backoff %s is negative", p.BaseBackoff)
	check(p.MaxBackoff >= 0, "max backoff %s is negative", p.MaxBackoff)
	check(p.Lease > 0, "lease %s is not positive", p.Lease)
	check(p.MaxCrashes >= 2, "max crashes %d is below 2: every task would have to run alone", p.MaxCrashes)
	check(p.Slack > 0, "promise slack %s is not positive", p.Slack)
	return errors.Join(errs...)
}

// Backoff is the wait after the attempt-th failure (1, 2, …): min(base·2^(attempt-1), max) without jitter.
func (p Policy) Backoff(attempt int) time.Duration {
	d := doubled(p.BaseBackoff, attempt-1, p.MaxBackoff)
	if p.Jitter != nil {
		d -= time.Duration(float64(d) * p.Jitter())
	}
	return d.Truncate(time.Microsecond)
}

// throttleDelay is the wait after the n-th throttle in a row of a service that named `named`.
func throttleDelay(n int, named time.Duration) time.Duration {
	floor := doubled(throttleFloor, n-1, throttleStep)
	return min(max(named, floor), throttleMax).Truncate(time.Microsecond)
}

// enqueueDelay is the time after promised_at at which a QUEUED row is looked at for the n-th time: (2^n − 1)·slack.
func enqueueDelay(n int, slack time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	return min(doubled(slack, n, enqueueMax+slack)-slack, enqueueMax)
}

// doubled is base·2^n, at most limit, without overflow.
func doubled(base time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && base < limit; n-- {
		if base == 0 {
			return 0
		}
		base *= 2
		if base < 0 {
			return limit
		}
	}
	return min(base, limit)
}

// Shorten cuts text to at most so many characters and marks the cut. What is no UTF-8 counts as one character a byte.
func Shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	runes := []rune(text)
	return string(runes[:most-1]) + "…"
}
