package fsck_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
)

func TestSamplerJudgesWhatMovedSinceItsLastLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.sql(`UPDATE ingest_task_transition SET fence = 7 WHERE task_id = ? AND reason = 'FAILED'`, w.good)
	metrics := prometheus.NewRegistry()
	var log bytes.Buffer
	s := fsck.NewSampler(w.store, policy, time.Hour, slog.New(slog.NewTextHandler(&log, nil)), metrics)
	figure := func() float64 {
		require.NoError(t, s.Look(t.Context()))
		families, err := metrics.Gather()
		require.NoError(t, err)
		sum := 0.0
		for _, m := range families[0].GetMetric() {
			sum += m.GetCounter().GetValue()
		}
		return sum
	}
	n, err := testutil.GatherAndCount(metrics, "ingest_invariant_violations")
	require.NoError(t, err)
	require.Equal(t, 13, n, "every class is there from the start")
	require.Zero(t, figure(), "the first look only notes the log's end")
	sound := w.document(w.id("8002"), "key-5")
	require.Zero(t, figure(), "what moved is sound, and what was broken before does not count")
	broken := w.document(w.id("8002"), "key-6")
	w.sql(`UPDATE ingest_task_transition SET attempt_count = 0 WHERE task_id = ? AND reason = 'FAILED'`, broken)
	require.NotZero(t, figure())
	require.Contains(t, log.String(), broken)
	require.NotContains(t, log.String(), sound)
	before := figure()
	require.Equal(t, before, figure(), "it is counted once")
}
