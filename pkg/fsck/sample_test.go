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
	"github.com/millweir/millweir/pkg/labserver"
)

func TestSamplerJudgesWhatMovedSinceItsLastLook(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		w.edit(`fence = 7`, `task_id = ? AND reason = 'FAILED'`, w.good)
		metrics := prometheus.NewRegistry()
		var log bytes.Buffer
		s := fsck.NewSampler(w.store, nil, policy, time.Hour, slog.New(slog.NewTextHandler(&log, nil)), metrics)
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
		require.Equal(t, 14, n, "every class is there from the start")
		require.Zero(t, figure(), "the first look only notes the log's end")
		sound := w.document(w.id("8002"), "key-5")
		require.Zero(t, figure(), "what moved is sound, and what was broken before does not count")
		broken := w.document(w.id("8002"), "key-6")
		w.edit(`attempt_count = 0`, `task_id = ? AND reason = 'FAILED'`, broken)
		require.NotZero(t, figure())
		require.Contains(t, log.String(), broken)
		require.NotContains(t, log.String(), sound)
		before := figure()
		require.Equal(t, before, figure(), "it is counted once")
	})
}

func TestSamplerNoticesALostVectorStore(t *testing.T) {
	t.Parallel()
	for name, open := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t))
			metrics := prometheus.NewRegistry()
			var log bytes.Buffer
			s := fsck.NewSampler(w.store, w.vectors, policy, time.Hour, slog.New(slog.NewTextHandler(&log, nil)), metrics)
			figure := func() float64 {
				require.NoError(t, s.Look(t.Context()))
				families, err := metrics.Gather()
				require.NoError(t, err)
				for _, m := range families[0].GetMetric() {
					if m.GetLabel()[0].GetValue() == "I25" {
						return m.GetCounter().GetValue()
					}
				}
				return -1
			}
			require.Zero(t, figure(), "the first look only notes the log's end")
			require.Zero(t, figure(), "every vector is there")
			require.Zero(t, figure(), "the end of the bases")
			require.NoError(t, w.vectors.Drop(t.Context(), base))
			require.Empty(t, s.Lost())
			require.InDelta(t, 1, figure(), 0)
			require.Contains(t, log.String(), "fsck --repair")
			for range 3 {
				require.InDelta(t, 1, figure(), 0, "a base is counted once")
				require.Equal(t, []string{base}, s.Lost())
			}
			w.sql(`UPDATE knowledge_base SET deleted_at = created_at WHERE id = ?`, base)
			for range 4 {
				figure()
			}
			require.Empty(t, s.Lost(), "a deleted base is nobody's trouble")
		})
	}
}
