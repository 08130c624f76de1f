package wiring_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring"
)

// base is a base whose log can be read.
func base() (*wiring.Base, *bytes.Buffer) {
	var log bytes.Buffer
	return wiring.New(&process.Env{Name: "test", Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry()}), &log
}

func TestCloseEndsTheLastFirstAndEachOnce(t *testing.T) {
	t.Parallel()
	b, log := base()
	var closed []int
	for i := range 3 {
		b.Later(func() error {
			closed = append(closed, i)
			if i == 1 {
				return errors.New("stuck")
			}
			return nil
		})
	}
	b.Close()
	b.Close()
	require.Equal(t, []int{2, 1, 0}, closed, "an error does not keep the others open")
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("stuck")))
}

func TestFiguresAreShownOnce(t *testing.T) {
	t.Parallel()
	b, log := base()
	figure := func(help string) prometheus.Collector {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "part", Help: help})
	}
	b.Watch(figure("a part"))
	b.Watch(figure("a part"))
	require.Empty(t, log.String(), "two parts of one kind share a figure")
	b.Watch(figure("another meaning of the name"))
	require.Contains(t, log.String(), "figures of a part")
	require.Equal(t, 1500*time.Millisecond, wiring.MS(1500))
}
