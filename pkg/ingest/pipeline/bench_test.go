package pipeline_test

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// BenchmarkUploadToVisible is one 10 KB text from Receive to its finish, without a queue; the embedder costs nothing.
func BenchmarkUploadToVisible(b *testing.B) {
	w := ingesttest.NewWorld(b, ingesttest.Options{})
	w.Embed.Batch = 64
	for i := 0; b.Loop(); i++ {
		a := w.Upload(fmt.Sprintf("%d\n%s", i, strings.Repeat(ingesttest.Lines(6, uint64(i)), 1)) + strings.Repeat(strings.Repeat("word ", 200)+"\n", 10))
		if w.Process(a.Task.ID).Status != taskstate.StatusSucceeded {
			b.Fatal("not visible")
		}
	}
}

// A document's size does not count in memory: its text and vectors pass through the spool and the embedding cache.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Embed.Batch, w.Embed.Model_.Dim = 256, 384
	w.Vectors.Forget = true
	const segments, size = 8_000, 2_000
	var text strings.Builder
	for i := range segments {
		fmt.Fprintf(&text, "%d %s\n", i, strings.Repeat("x", size))
	}
	a := w.Upload(text.String()) // 16 MB of text, 12 MB of vectors
	text.Reset()
	job, _ := w.Claim(a.Task.ID)
	var mu sync.Mutex // batches report side by side
	var peak uint64
	last := time.Time{}
	job.Report = func(taskstate.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < 200*time.Millisecond {
			return
		}
		last = time.Now()
		peak = max(peak, liveHeap())
	}
	before := liveHeap()
	require.NoError(t, w.Handler.Handle(t.Context(), job).Err)
	grown := int64(peak) - int64(before)
	t.Logf("live heap grew by %.1f MB", float64(grown)/(1<<20))
	require.Less(t, grown, int64(12<<20))
}

// liveHeap is what a collection leaves; what others allocate before this goroutine has its turn again does not count.
func liveHeap() uint64 {
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return live[0].Value.Uint64()
}
