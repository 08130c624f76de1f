package tasks

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// backlogFresh is how long a count of the backlog is believed.
	backlogFresh = time.Second
	// backlogLeast and backlogMost bound the wait that a refused request is told.
	backlogLeast = time.Second
	backlogMost  = 5 * time.Minute
	// backlogUnknown is that wait before anything is known of the pace.
	backlogUnknown = 10 * time.Second
)

// backlogFullError is ErrBacklogFull with the time after which a retry is worth while.
type backlogFullError struct{ after time.Duration }

// Error is ErrBacklogFull's.
func (e *backlogFullError) Error() string { return ErrBacklogFull.Error() }

// Unwrap returns ErrBacklogFull.
func (e *backlogFullError) Unwrap() error { return ErrBacklogFull }

// RetryAfter is the wait that the caller should be told.
func (e *backlogFullError) RetryAfter() time.Duration { return e.after }

// backlog knows about how many tasks wait, without a count for each request:
// one bounded count a second, plus what this process accepted since.
type backlog struct {
	mu      sync.Mutex
	at      time.Time
	waiting int64
	oldest  time.Duration // how long the oldest waiting task waits
}

// full returns an error with ErrBacklogFull when the backlog has reached its limit.
// The count reads an index and stops at the limit; it takes no lock, so the bound is soft by what other processes accept within a second.
func (g *backlog) full(ctx context.Context, s *Service) (full error, err error) {
	limit := int64(s.cfg.MaxBacklog)
	if limit == 0 {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := s.d.Clock()
	if g.at.IsZero() || now.Sub(g.at) >= backlogFresh || now.Before(g.at) {
		n, oldest, err := s.d.Store.Due(ctx, int(limit))
		if err != nil {
			return nil, fmt.Errorf("count the backlog: %w", err)
		}
		g.at, g.waiting, g.oldest = now, n, oldest
	}
	if g.waiting < limit {
		return nil, nil
	}
	return &backlogFullError{after: g.wait()}, nil
}

// wait estimates when there is room: what waited before the oldest task has gone in its time, about a backlog,
// and a tenth of a backlog is room worth coming back for.
func (g *backlog) wait() time.Duration {
	if g.oldest <= 0 {
		return backlogUnknown
	}
	return min(max(g.oldest/10, backlogLeast), backlogMost)
}

// add counts tasks that this process accepted.
func (g *backlog) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += int64(n)
}
