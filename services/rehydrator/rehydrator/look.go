package rehydrator

import (
	"context"
	"sync"

	"github.com/millweir/millweir/pkg/pause"
)

// look knows whether the queue of deliveries is away.
type look struct {
	ping func(ctx context.Context) error

	mu      sync.Mutex
	gone    bool
	streak  int           // looks in a row that say otherwise
	changed chan struct{} // closed when it is back
}

// run looks until ctx ends.
func (l *look) run(ctx context.Context) error {
	for {
		one, cancel := context.WithTimeout(ctx, lookTime)
		err := l.ping(one)
		cancel()
		l.note(err == nil)
		if !pause.For(ctx, lookEvery) {
			return ctx.Err()
		}
	}
}

// note takes the result of a look.
func (l *look) note(there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if there != l.gone {
		l.streak = 0
		return
	}
	if l.streak++; l.streak < awayAfter {
		return
	}
	l.gone, l.streak = !there, 0
	if there {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *look) away() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// returns is closed the next time that the queue, which was away, is back.
func (l *look) returns() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}
