package stage

import (
	"sync"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/taskstate/history"
)

// Notebook keeps what the checker said. It is safe for concurrent use.
type Notebook struct {
	mu      sync.Mutex
	reports []history.Report
}

// Add keeps one look's report.
func (n *Notebook) Add(r history.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports = append(n.reports, r)
}

// Sum is all that was said.
func (n *Notebook) Sum() history.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fsck.Merge(n.reports...)
}
