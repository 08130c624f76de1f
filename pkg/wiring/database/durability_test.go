package database

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

// Lines is a log that can be read while it is written.
type Lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// Durability returns the lines that begin so.
func (l *Lines) Durability() (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range strings.Split(l.buf.String(), "\n") {
		if strings.Contains(line, "durability: task=") {
			found = append(found, line)
		}
	}
	return found
}

// The looks go on: a server that is weakened or mended while it runs is found out, each change is said once,
// and an absent server changes nothing.
func TestDurabilityIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		level, absent, looks := sqldb.LevelDisk, errors.New("away"), 0
		log := &Lines{}
		d := &durability{
			log: slog.New(slog.NewTextHandler(log, nil)), lastStream: "unknown",
			degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "durability_degraded"}, []string{"store"}),
			stream:   func(context.Context) (string, error) { return "1s", nil },
			task: func(context.Context) (sqldb.Durability, error) {
				mu.Lock()
				defer mu.Unlock()
				looks++
				return sqldb.Durability{{Name: "flush", Value: "x", Level: level, Want: "1"}}, absent
			},
		}
		set := func(l sqldb.Level, err error) {
			mu.Lock()
			defer mu.Unlock()
			level, absent = l, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); d.run(ctx) }()
		synctest.Wait()
		require.Empty(t, log.Durability(), "the database has not answered")
		require.NoError(t, d.ready(ctx), "the database's own check speaks")
		for i, step := range []struct {
			level sqldb.Level
			err   error
			wait  time.Duration
			lines int
			weak  float64
			ready bool
		}{
			{sqldb.LevelDisk, nil, durabilityRetry, 1, 0, true},
			{sqldb.LevelDisk, nil, 10 * durabilityEvery, 1, 0, true},
			{sqldb.LevelSecond, nil, durabilityEvery, 2, 1, true},
			{sqldb.LevelNone, nil, durabilityEvery, 3, 1, false},
			{sqldb.LevelDisk, errors.New("away"), durabilityEvery, 3, 1, false},
			{sqldb.LevelDisk, nil, durabilityEvery, 4, 0, true},
		} {
			set(step.level, step.err)
			<-time.After(step.wait)
			synctest.Wait()
			require.Len(t, log.Durability(), step.lines, i)
			require.Equal(t, step.weak, testutil.ToFloat64(d.degraded.WithLabelValues("task")), i)
			require.Equal(t, step.ready, d.ready(ctx) == nil, i)
		}
		cancel()
		<-ended
	})
}
