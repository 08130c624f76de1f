package local

import (
	"context"
	"errors"
	"sync"
)

// ErrUnchecked is the state before the first look.
var ErrUnchecked = errors.New("not looked at yet")

// Fitness knows whether the process can run tasks at all.
type Fitness struct {
	mu      sync.Mutex
	Err     error // why it takes no work; nil: it does
	changed signal
}

// State returns what is closed at the next change, and why no work is taken; nil: it is.
func (f *Fitness) State() (changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed.wait(), f.Err
}

// Problem returns why no work is taken; nil: it is.
func (f *Fitness) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Err
}

// Set notes the state; first tells that the process could work until now.
func (f *Fitness) Set(err error) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = f.Err == nil && err != nil
	if (f.Err == nil) != (err == nil) {
		f.changed.ring()
	}
	f.Err = err
	return first
}

// Await waits until the process can work; it reports whether ctx goes on.
func (f *Fitness) Await(ctx context.Context) bool {
	return Until(ctx, func() (bool, <-chan struct{}) {
		changed, err := f.State()
		return err == nil, changed
	})
}
