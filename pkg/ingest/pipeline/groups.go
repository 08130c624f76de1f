package pipeline

import (
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
)

// What the runs of one process do together: each batcher is one group commit.
const (
	worksMinConcurrent = 8
	worksMost          = 32
	groupWorkers       = 2
	groupWait          = 100 * time.Millisecond
)

// group makes the batchers.
func (w *Worker) group() {
	w.works = batcher.New(batcher.Config{Workers: groupWorkers, MinConcurrent: worksMinConcurrent, Most: worksMost, MaxWait: groupWait}, w.loadTogether)
	w.parts = batcher.New(batcher.Config{
		Workers: rowsWorkers, MinConcurrent: rowsMinConcurrent, Most: rowsMost, MaxWait: groupWait,
		Expect: func(int) bool { return w.before.Load() > 0 }, Gather: rowsGather, Split: ingest.Splits,
	}, w.rowsTogether)
}
