package taskrun

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// ErrProcess marks an error of Handler.Run that the process caused and not the task: it has no file descriptor left, no space for
// temporary files, or does not see the folder of the uploads (design D20). The task is handed back and counts no attempt,
// and the process takes no work until Deps.Fit returns nil.
var ErrProcess = errors.New("the process cannot work")

// errUnchecked is the state before the first look.
var errUnchecked = errors.New("not looked at yet")

const (
	fitFloor = time.Second      // pause before the first look after a fault
	fitMost  = 30 * time.Second // the longest, when fault follows fault
	fitQuiet = time.Minute      // so long without a fault: the next one is a new one
)

// fitness knows whether the process can run tasks at all.
type fitness struct {
	mu      sync.Mutex
	err     error // why it takes no work; nil: it does
	changed signal
}

// state returns what is closed at the next change, and why no work is taken; nil: it is.
func (f *fitness) state() (changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed.wait(), f.err
}

// problem returns why no work is taken; nil: it is.
func (f *fitness) problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// set notes the state; first tells that the process could work until now.
func (f *fitness) set(err error) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = f.err == nil && err != nil
	if (f.err == nil) != (err == nil) {
		f.changed.ring()
	}
	f.err = err
	return first
}

// await waits until the process can work; it reports whether ctx goes on.
func (f *fitness) await(ctx context.Context) bool {
	for {
		changed, err := f.state()
		if err == nil {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// takesNothing reports whether the process takes no new work now: it cannot work, or a task runs alone.
func (r *Runner) takesNothing() bool { return r.isolated.active() || r.fit.problem() != nil }

// unfit stops the taking of work until the fitness loop finds the fault gone. What ran beside the first fault was too much:
// half as many tasks run at once then, and one more each time that so many succeeded.
func (r *Runner) unfit(ctx context.Context, err error) {
	if r.deps.Fit == nil {
		r.health.warn(ctx, "runner: a fault of the process", err)
		return
	}
	if r.fit.set(err) {
		r.deps.Log.LogAttrs(ctx, slog.LevelError, "runner: the process cannot work; it takes nothing until it can", slog.Any("error", err))
		r.slots.shrink()
	}
}

// fitLoop looks whether the process can work: at the start, and after each fault until it can.
func (r *Runner) fitLoop(ctx context.Context) {
	var wait time.Duration
	var well time.Time
	for ctx.Err() == nil {
		changed, err := r.fit.state()
		if err == nil {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			if r.deps.Now().Sub(well) >= fitQuiet {
				wait = 0
			}
			wait = min(max(2*wait, fitFloor), fitMost)
			if !pause(ctx, wait) {
				return
			}
		}
		if err := r.inspectFit(ctx); err != nil {
			r.fit.set(err)
			r.health.warn(ctx, "runner: the process cannot work", err)
			if !pause(ctx, max(wait, fitFloor)) {
				return
			}
			continue
		}
		well = r.deps.Now()
		if !errors.Is(err, errUnchecked) {
			r.deps.Log.InfoContext(ctx, "runner: the process can work again", "slots", r.slots.usableNow())
		}
		r.fit.set(nil)
	}
}

// inspectFit asks the parts whether they can work; a look that hangs is a fault too.
func (r *Runner) inspectFit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return r.deps.Fit(ctx)
}
