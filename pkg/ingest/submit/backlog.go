package submit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	// backlogFresh is how long a count of the backlog is believed.
	backlogFresh = time.Second
	// backlogLeast and backlogMost bound the wait that a refused upload is told.
	backlogLeast = time.Second
	backlogMost  = 5 * time.Minute
	// backlogUnknown is that wait before anything is known of the pace.
	backlogUnknown = 10 * time.Second
)

// BacklogFullError is ErrBacklogFull with the time after which a retry is worth while.
type BacklogFullError struct{ after time.Duration }

// Error is ErrBacklogFull's.
func (e *BacklogFullError) Error() string { return ingest.ErrBacklogFull.Error() }

// Unwrap returns ErrBacklogFull.
func (e *BacklogFullError) Unwrap() error { return ingest.ErrBacklogFull }

// RetryAfter is the wait that the caller should be told.
func (e *BacklogFullError) RetryAfter() time.Duration { return e.after }

// Backlog knows about how many tasks wait, without a count for every upload:
// one bounded count a second, plus what this process accepted since.
type Backlog struct {
	d     ingest.Deps
	limit int64 // 0: none

	mu      sync.Mutex
	at      time.Time
	waiting int64
	oldest  time.Duration // how long the oldest waiting task waits
}

// NewBacklog makes a Backlog.
func NewBacklog(d ingest.Deps, cfg ingest.Config) *Backlog {
	return &Backlog{d: d, limit: int64(cfg.MaxBacklog)}
}

// Full returns an error with ErrBacklogFull when the backlog has reached its limit.
// The count reads an index and stops at the limit; it takes no lock, so the bound is soft by what other processes accept within a second.
func (g *Backlog) Full(ctx context.Context) (full *BacklogFullError, err error) {
	limit := g.limit
	if limit == 0 {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.d.Clock()
	if g.at.IsZero() || now.Sub(g.at) >= backlogFresh || now.Before(g.at) {
		n, oldest, err := g.d.Store.Due(ctx, int(limit))
		if err != nil {
			return nil, fmt.Errorf("count the backlog: %w", err)
		}
		g.at, g.waiting, g.oldest = now, n, oldest
	}
	if g.waiting < limit {
		return nil, nil
	}
	return &BacklogFullError{after: g.wait()}, nil
}

// wait estimates when there is room: what waited before the oldest task has gone in its time, about a backlog,
// and a tenth of a backlog is room worth coming back for.
func (g *Backlog) wait() time.Duration {
	if g.oldest <= 0 {
		return backlogUnknown
	}
	return min(max(g.oldest/10, backlogLeast), backlogMost)
}

// Add counts tasks that this process accepted.
func (g *Backlog) Add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += int64(n)
}
