package model

import (
	"math/rand/v2"
	"time"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Jitter says how a policy's delay is spread, so that messages that failed together do not come back together.
type Jitter string

// The kinds of jitter of a delay d.
const (
	JitterNone  Jitter = ""      // d
	JitterEqual Jitter = "equal" // d/2 … d
	JitterFull  Jitter = "full"  // 0 … d
)

// RetryPolicy says how often and when a failed message runs again.
type RetryPolicy struct {
	// MaxAttempts is the number of runs in all; 0: what the message says.
	MaxAttempts int
	// Backoff is the delay after the first failure; it doubles from failure to failure up to MaxBackoff.
	// Equal values give a fixed delay.
	Backoff, MaxBackoff time.Duration
	// Jitter spreads the delays.
	Jitter Jitter
	// Delay, if set, gives the delay after the failed-th failure (from 1) instead of all that.
	Delay func(failed int) time.Duration
}

// DeadLetterPolicy says what becomes of messages that failed for good.
type DeadLetterPolicy string

// The policies for OutcomeFail and used-up attempts. OutcomeDeadLetter always keeps a dead letter.
const (
	DeadLetterKeep DeadLetterPolicy = "keep" // a dead letter
	DeadLetterDrop DeadLetterPolicy = "drop" // acknowledged, and counted
)

// RetryMode says where a failed message waits.
type RetryMode string

// The retry modes.
const (
	// RetryRepublish acknowledges the entry, stores its message apart and adds it to the same partition when it is due.
	RetryRepublish RetryMode = "republish"
	// RetryInPlace leaves the entry pending; it is delivered again when it is due, and pins the stream until then.
	RetryInPlace RetryMode = "in_place"
)

func Exhausted(p RetryPolicy, d *Delivery) bool {
	limit := p.MaxAttempts
	if limit == 0 {
		limit = d.MaxAttempts
	}
	if limit == 0 {
		limit = DefaultMaxAttempts
	}
	return d.Attempt >= limit
}

// Delay after failed failures, from 1.
func Delay(p RetryPolicy, failed int) time.Duration {
	if p.Delay != nil {
		return max(0, p.Delay(failed))
	}
	d := p.Backoff
	for i := 1; i < failed && d < p.MaxBackoff; i++ {
		d += min(d, p.MaxBackoff-d) // twice of it may be more than a Duration holds
	}
	d = min(d, p.MaxBackoff)
	switch {
	case d <= 0 || p.Jitter == JitterNone:
		return max(0, d)
	case p.Jitter == JitterEqual:
		return d/2 + rand.N(d/2+1)
	default:
		return rand.N(d) // d+1 may be more than a Duration holds
	}
}

// Retention is what is kept of entries that every group has finished: MaxLen entries a partition (0: any number), for MaxAge
// (0: any time), or with Finished nothing, while there is a group. What a group has not finished always stays.
type Retention = stream.Keep

func ValidateRetention(r Retention) error {
	var p Problems
	p.Refuse(r.MaxLen < 0 || r.MaxAge < 0, "Retention %+v: must not be negative", r)
	return p.Err()
}

// DeletePolicy says whether entries are deleted as soon as they are finished, instead of by Retention. In either case an entry
// that another group has not finished stays. A payload beside the stream goes with the next trim.
type DeletePolicy string

// The policies. A stream from which entries were deleted has a lag that the server cannot tell; it is counted then.
const (
	DeleteNever         DeletePolicy = ""
	DeleteImmediately   DeletePolicy = "immediate"  // while the stream has one group, with its acknowledgement; with more of them never
	DeleteWhenAllFinish DeletePolicy = "all-groups" // with the acknowledgement of the last group
)
