package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// backlogFresh is how long a count of the backlog is believed.
const backlogFresh = time.Second

// backlogGauge knows about how many tasks wait, without a count for every upload:
// one bounded count a second, plus what this process accepted since.
type backlogGauge struct {
	mu      sync.Mutex
	at      time.Time
	waiting int64
}

// full reports whether the backlog has reached its limit.
// The count reads an index and stops at the limit; it takes no lock, so the bound is soft by what other processes accept within a second.
func (g *backlogGauge) full(ctx context.Context, a *App) (bool, error) {
	limit := int64(a.cfg.MaxBacklog)
	if limit == 0 {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := a.d.Clock()
	if g.at.IsZero() || now.Sub(g.at) >= backlogFresh || now.Before(g.at) {
		n, _, err := a.d.Store.Due(ctx, int(limit))
		if err != nil {
			return false, fmt.Errorf("count the backlog: %w", err)
		}
		g.at, g.waiting = now, n
	}
	return g.waiting >= limit, nil
}

// add counts tasks that this process accepted.
func (g *backlogGauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += int64(n)
}
