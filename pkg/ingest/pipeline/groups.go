package pipeline

import (
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
)

// What the runs of one process do together: each batcher is one group commit.
const (
	worksEnough = 8
	worksMost   = 32
	groupLanes  = 2
	groupWait   = 100 * time.Millisecond
)

// group makes the batchers.
func (a *Worker) group() {
	a.works = batcher.New(batcher.Config{Workers: groupLanes, MinConcurrent: worksEnough, Most: worksMost, MaxWait: groupWait}, a.loadTogether)
	a.parts = batcher.New(batcher.Config{
		Workers: rowsWorkers, MinConcurrent: rowsMinConcurrent, Most: rowsMost, MaxWait: groupWait,
		Expect: func(int) bool { return a.before.Load() > 0 }, Gather: rowsGather, Split: ingest.Splits,
	}, a.rowsTogether)
}
