package outbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffIsTheContractsFormula(t *testing.T) {
	t.Parallel()
	c := NewDefaultConfig()
	c.BaseBackoff, c.MaxBackoff = time.Second, 10*time.Second
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1000: 10 * time.Second} {
		require.Equal(t, want, c.backoff(attempt), "attempt %d", attempt)
	}
	c.BaseBackoff = 0
	require.Zero(t, c.backoff(1000))
	c.BaseBackoff, c.MaxBackoff = time.Minute, time.Second
	require.Equal(t, time.Second, c.backoff(1))
}

func TestJudge(t *testing.T) {
	t.Parallel()
	c := NewDefaultConfig()
	c.MaxAttempts, c.BaseBackoff = 3, time.Second
	absent := errors.New("connection refused")
	tooLarge := &RefusedError{Err: errors.New("message too large")}
	noTopic := &RefusedError{Err: errors.New("unknown topic"), Late: true}
	for name, one := range map[string]struct {
		before Event
		err    error
		want   Mark
	}{
		"acknowledged":                    {Event{AttemptCount: 2, Cause: CauseUnavailable}, nil, Mark{To: StatusSent, Cause: CauseNone}},
		"absent":                          {Event{Cause: CauseNone}, absent, Mark{To: StatusRetrying, Cause: CauseUnavailable, Attempt: 1, Wait: time.Second}},
		"absent again":                    {Event{AttemptCount: 1, Cause: CauseUnavailable}, absent, Mark{To: StatusRetrying, Cause: CauseUnavailable, Attempt: 2, Wait: 2 * time.Second}},
		"absent to the end":               {Event{AttemptCount: 2, Cause: CauseUnavailable}, absent, Mark{To: StatusDead, Cause: CauseUnavailable, Attempt: 3}},
		"refused at once":                 {Event{Cause: CauseNone}, fmt.Errorf("send: %w", tooLarge), Mark{To: StatusDead, Cause: CauseRefused, Attempt: 1}},
		"refused by the sentinel":         {Event{Cause: CauseNone}, fmt.Errorf("not authorised: %w", ErrRefused), Mark{To: StatusDead, Cause: CauseRefused, Attempt: 1}},
		"unknown topic":                   {Event{Cause: CauseNone}, noTopic, Mark{To: StatusRetrying, Cause: CauseRefused, Attempt: 1, Wait: time.Second}},
		"unknown topic to the end":        {Event{AttemptCount: 2, Cause: CauseRefused}, noTopic, Mark{To: StatusDead, Cause: CauseRefused, Attempt: 3}},
		"absent after an unknown topic":   {Event{AttemptCount: 1, Cause: CauseRefused}, absent, Mark{To: StatusRetrying, Cause: CauseRefused, Attempt: 2, Wait: 2 * time.Second}},
		"one refused among others counts": {Event{AttemptCount: 2, Cause: CauseRefused}, absent, Mark{To: StatusDead, Cause: CauseRefused, Attempt: 3}},
	} {
		one.want.Seq, one.want.Token = 7, "t"
		one.before.Seq = 7
		require.Equal(t, one.want, c.judge(Leased{Event: one.before}, "t", one.err), name)
	}
}

func TestTurnsAreWholeBatches(t *testing.T) {
	t.Parallel()
	for batch, want := range map[int]int{1: 100, 20: 100, 30: 120, 99: 198, 100: 100, 500: 500, 5000: 5000} {
		c := NewDefaultConfig()
		c.BatchSize = batch
		require.Equal(t, want, c.turnSize(), "batch %d", batch)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	require.NoError(t, NewDefaultConfig().Validate())
	err := Config{}.Validate()
	for _, name := range []string{"INGEST_KAFKA_MAX_ATTEMPTS", "INGEST_KAFKA_PUBLISH_BATCH_SIZE", "INGEST_KAFKA_PUBLISH_INTERVAL_MS"} {
		require.ErrorContains(t, err, name)
	}
}

func TestErrorTextIsKeptWithinBounds(t *testing.T) {
	t.Parallel()
	long := make([]byte, 0, 9000)
	for range 3000 {
		long = append(long, "ä"...)
	}
	text := errorText(fmt.Errorf("dial kafka://u:hidden@host: \x00\xff %s", long))
	require.NotContains(t, text, "hidden")
	require.NotContains(t, text, "\x00")
	require.Len(t, []rune(text), maxErrorText)
}
