package taskrun

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// The times of recovery that guarantees name, by a clock that no stall of the machine can move: whatever the moment at which a
// process dies, its task runs again within the lease and 2 s; a stop hands back within 1 s; a retry begins within 250 ms.
// Tests on real servers judge what happens, and leave how soon to this one.
func TestRecoveryTimes(t *testing.T) {
	t.Parallel()
	const commit = 20 * time.Millisecond // what every transaction takes
	slow := func(op string) error {
		if op == "apply" || op == "sweep RUNNING" || op == "sweep RETRYING" || op == "heartbeat" || op == "nextwake" {
			<-time.After(commit)
		}
		return nil
	}
	for phase := range 10 { // of the death against the loops' ticks
		died := time.Second + time.Duration(phase)*137*time.Millisecond
		t.Run(fmt.Sprint("killed after ", died), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.store.setFault(slow)
				var began []time.Duration
				start := time.Now()
				kind := &testHandler{run: func(_ context.Context, j Job) Result {
					began = append(began, time.Since(start))
					return Result{}
				}}
				p := w.start("heir", kind)
				stillFor(died)
				w.expired("x", p.cfg.Policy.Lease) // its heartbeat has just renewed the lease: the longest wait
				stillFor(p.cfg.Policy.Lease + 3*time.Second)
				require.Len(t, began, 1)
				require.GreaterOrEqual(t, began[0], died+p.cfg.Policy.Lease)
				require.LessOrEqual(t, began[0], died+p.cfg.Policy.Lease+2*time.Second)
			})
		})
		t.Run(fmt.Sprint("stopped after ", died), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.store.setFault(slow)
				for i := range 4 {
					w.task(fmt.Sprint("t", i))
				}
				p := w.start("a", &testHandler{run: func(ctx context.Context, _ Job) Result {
					<-ctx.Done()
					<-time.After(100 * time.Millisecond) // it comes back soon, not at once
					return Result{Err: ctx.Err()}
				}}, func(c *Config) { c.StopGrace = 0 })
				stillFor(died)
				stopping := time.Now()
				p.end(t)
				require.LessOrEqual(t, time.Since(stopping), time.Second)
				require.Equal(t, map[taskstate.Status]int{taskstate.StatusQueued: 4}, w.store.statuses())
			})
		})
		t.Run(fmt.Sprint("due after ", died), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.store.setFault(slow)
				start := time.Now()
				var late []time.Duration
				w.start("a", &testHandler{run: func(context.Context, Job) Result {
					late = append(late, time.Since(start)-died)
					return Result{}
				}})
				w.retrying("x", died)
				stillFor(died + time.Second)
				require.Len(t, late, 1)
				require.GreaterOrEqual(t, late[0], time.Duration(0))
				require.LessOrEqual(t, late[0], 250*time.Millisecond)
			})
		})
	}
}
