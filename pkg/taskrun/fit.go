package taskrun

import (
	"context"
	"errors"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"log/slog"
	"time"
)

// ErrProcess marks an error of Handler.Handle that the process caused and not the task: it has no file descriptor left, no space for
// temporary files, or does not see the folder of the uploads (design D20). The task is handed back and counts no attempt,
// and the process takes no work until Deps.Fit returns nil.
var ErrProcess = errors.New("the process cannot work")

// ErrElsewhere marks an error of Handler.Handle that says that this program lacks a part which the task needs and others have: a
// reclaimer links no PDF engine. The task is handed back, counts no attempt, and the process goes on.
var ErrElsewhere = errors.New("another program does this")

const (
	fitFloor = time.Second      // pause before the first look after a fault
	fitMost  = 30 * time.Second // the longest, when fault follows fault
	fitQuiet = time.Minute      // so long without a fault: the next one is a new one
)

// takesNothing reports whether the process takes no new work now: it cannot work, a task runs alone, or it is drained.
func (r *Runner) takesNothing() bool {
	return r.isolated.Active() || r.fit.Problem() != nil || r.draining.Problem() != nil
}

// unfit stops the taking of work until the fitness loop finds the fault gone. What ran beside the first fault was too much:
// half as many tasks run at once then, and one more each time that so many succeeded.
func (r *Runner) unfit(ctx context.Context, err error) {
	if r.deps.Fit == nil {
		r.health.Warn(ctx, "runner: a fault of the process", err)
		return
	}
	if r.fit.Set(err) {
		r.deps.Log.LogAttrs(ctx, slog.LevelError, "runner: the process cannot work; it takes nothing until it can", slog.Any("error", err))
		r.slots.Shrink()
	}
}

// fitLoop looks whether the process can work: at the start, and after each fault until it can.
func (r *Runner) fitLoop(ctx context.Context) {
	var wait time.Duration
	var well time.Time
	for ctx.Err() == nil {
		changed, err := r.fit.State()
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
			if !pause.For(ctx, wait) {
				return
			}
		}
		if err := r.inspectFit(ctx); err != nil {
			r.fit.Set(err)
			r.health.Warn(ctx, "runner: the process cannot work", err)
			if !pause.For(ctx, max(wait, fitFloor)) {
				return
			}
			continue
		}
		well = r.deps.Now()
		if !errors.Is(err, local.ErrUnchecked) {
			r.deps.Log.InfoContext(ctx, "runner: the process can work again", "slots", r.slots.UsableNow())
		}
		r.fit.Set(nil)
	}
}

// inspectFit asks the parts whether they can work; a look that hangs is a fault too.
func (r *Runner) inspectFit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, local.CallLimit)
	defer cancel()
	return r.deps.Fit(ctx)
}
