package ingestqtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
)

func TestAFailureNeedsAStallOfItsServer(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		silent []span
		call   call
		want   bool
	}{
		"nothing measured":           {nil, call{from: at(0), to: at(2000)}, false},
		"silent all the time":        {[]span{{at(10), at(2100), false}}, call{from: at(0), to: at(2000)}, true},
		"slow again and again":       {[]span{{at(10), at(250), false}, {at(300), at(560), false}}, call{from: at(0), to: at(2000)}, true},
		"a hiccup":                   {[]span{{at(10), at(60), false}}, call{from: at(0), to: at(2000)}, false},
		"long before":                {[]span{{at(-9000), at(-7000), false}}, call{from: at(0), to: at(2000)}, false},
		"right before":               {[]span{{at(-3000), at(-1000), false}}, call{from: at(0), to: at(1)}, true},
		"after it":                   {[]span{{at(2001), at(5000), false}}, call{from: at(0), to: at(2000)}, false},
		"no connection":              {[]span{{at(5), at(6), true}}, call{from: at(0), to: at(7)}, true},
		"failed at once, no silence": {[]span{{at(0), at(30), false}}, call{from: at(0), to: at(7)}, false},
	} {
		s := &stalls{silent: c.silent}
		require.Equal(t, c.want, s.explains(c.call), name)
	}
	s := &stalls{wipes: []time.Time{at(0)}}
	require.True(t, s.explains(call{from: at(900), to: at(901)}), "its group is not made again at once")
	require.False(t, s.explains(call{from: at(6600), to: at(6601)}))
	require.False(t, s.explains(call{from: at(-20), to: at(-10)}))
}

// flaky is a member whose calls fail once.
type flaky struct {
	ingestq.PendingQueue
	left int
}

func (f *flaky) Ping(context.Context) error {
	if f.left--; f.left >= 0 {
		return fmt.Errorf("%w: for no reason", ingestq.ErrUnavailable)
	}
	return nil
}

func TestAFailureWithoutAStallFailsTheSuite(t *testing.T) {
	t.Parallel()
	s := &stalls{}
	p := patient{&flaky{left: 2}, s}
	require.NoError(t, p.Ping(t.Context()), "it is tried again")
	count, err := s.judge()
	require.Equal(t, 2, count)
	require.ErrorContains(t, err, "Ping failed after")
	require.ErrorContains(t, err, "for no reason")

	s = &stalls{probe: func(context.Context) error { return errors.New("no server") }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch(ctx)
	}()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.silent) > 0
	}, waitLimit, time.Millisecond)
	require.NoError(t, patient{&flaky{left: 1}, s}.Ping(t.Context()))
	cancel()
	<-done
	count, err = s.judge()
	require.Equal(t, 1, count)
	require.NoError(t, err, "its server was away")
}
