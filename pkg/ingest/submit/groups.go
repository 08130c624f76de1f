package submit

import (
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
)

// Claims and releases of keys that come together share a transaction.
const (
	groupMost     = 128
	groupLanes    = 2
	groupPatience = 250 * time.Millisecond
)

// groupKeys makes the batcher of claims and releases.
func groupKeys(a *Keys) *batcher.Batcher[*keyChange] {
	return batcher.New(batcher.Config{
		Workers: groupLanes, MinConcurrent: keysMinConcurrent, Most: groupMost, MaxWait: groupPatience, Split: ingest.Splits,
		Expect: func(waiting int) bool { return a.holding.Load() > int64(waiting) }, Gather: keysGather,
	}, a.changeKeys)
}
