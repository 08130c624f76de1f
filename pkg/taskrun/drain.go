package taskrun

import (
	"context"
	"errors"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
)

// ErrDraining is why a process takes no work that an operator drains.
var ErrDraining = errors.New("an operator drains this process")

// drainOnce reads what an operator wants of this process (design D22): draining it takes no new task and ends those that it has, a
// reserved one too. quiet says that it has none: one that was draining before has drained then, and leaves its group. Its lease is renewed
// all the while, so that it is seen. A new start of the process has a row of its own and drains nothing.
func (r *Runner) drainOnce(ctx context.Context, quiet bool) error {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	wanted, err := r.store.Drains(ctx, r.cfg.Process)
	if err != nil {
		return err
	}
	before := r.draining.Problem() != nil
	switch {
	case !wanted && before:
		r.left.Set(nil)
		r.draining.Set(nil)
		r.deps.Log.InfoContext(ctx, "runner: an operator has ended the draining; it takes work again", "process", r.cfg.Process)
	case wanted && !before:
		r.draining.Set(ErrDraining)
		if y, ok := r.deps.Queue.(ingestq.Yielder); ok {
			y.Yield() // others need not wait until the last task here has ended
		}
		r.deps.Log.InfoContext(ctx, "runner: an operator drains this process; it takes no more work", "process", r.cfg.Process, "tasks", len(r.claims.All()))
	case wanted && quiet && r.left.Problem() == nil:
		if err := r.store.Drained(ctx, r.cfg.Process); err != nil {
			return err
		}
		r.left.Set(ErrDraining)
		r.deps.Log.InfoContext(ctx, "runner: drained: it has no task and has left its group", "process", r.cfg.Process)
	}
	return nil
}

// memberLoop is the member of the queue's group, until ctx ends: again when its membership ended, and not while the process is drained.
func (r *Runner) memberLoop(ctx context.Context) {
	wait := local.Backoff()
	for r.left.Await(ctx) {
		member, leave := context.WithCancel(ctx)
		go func() {
			local.Until(member, func() (bool, <-chan struct{}) {
				changed, err := r.left.State()
				return err != nil, changed
			})
			leave()
		}()
		err := r.deps.Queue.Run(member)
		leave()
		if ctx.Err() == nil && r.left.Problem() == nil {
			r.health.Warn(ctx, "runner: group membership ended", err)
			pause.For(ctx, wait.Next())
		}
	}
}
