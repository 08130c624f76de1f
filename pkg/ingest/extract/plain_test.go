//go:build !race

// The tests of this file look at a child's time and memory, which mean nothing under the race detector.

package extract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// TestHostileCorpus reads every file of the project's corpus, and a folder of HOSTILE_CORPUS beside it,
// within the bounds of a task.
func TestHostileCorpus(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	slowest, which := time.Duration(0), ""
	for _, dir := range []string{filepath.Join("testdata", "corpus"), os.Getenv("HOSTILE_CORPUS")} {
		files, err := os.ReadDir(dir)
		if dir == "" {
			continue
		}
		require.NoError(t, err)
		for _, f := range files {
			if f.IsDir() || strings.HasPrefix(f.Name(), "MANIFEST") {
				continue
			}
			began := time.Now()
			_, _, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join(dir, f.Name()))
			if took := time.Since(began); took > slowest {
				slowest, which = took, f.Name()
			}
			if err != nil {
				extracttest.RequirePermanent(t, err)
			}
		}
	}
	require.Less(t, slowest, time.Minute)
	require.LessOrEqual(t, p.Stats().PeakBytes, int64(512<<20))
	t.Logf("slowest %s in %v, largest child %d MiB, %d killed", which, slowest.Round(time.Millisecond), p.Stats().PeakBytes>>20, p.Stats().Killed)
}

func TestHostileFilesStayWithinLimits(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	for _, h := range hostileFiles() {
		t.Run(h.name, func(t *testing.T) {
			start := time.Now()
			_, _, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, h.name, h.make(t)))
			if h.codes != nil {
				extracttest.RequirePermanent(t, err, h.codes...)
			} else if err != nil {
				extracttest.RequirePermanent(t, err)
			}
			t.Logf("%v in %v, peak so far %d MiB", err, time.Since(start).Round(time.Millisecond), p.Stats().PeakBytes>>20)
		})
	}
	require.LessOrEqual(t, p.Stats().PeakBytes, int64(maxChildBytes))
	require.Zero(t, p.Stats().Killed, "each file ends by its reader's own limits")
}
