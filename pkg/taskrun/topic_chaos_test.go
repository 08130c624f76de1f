package taskrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
)

// onTheLoose lets processes stop and start, the topic lose all it has, records be read again and the broker be away, n times.
func (l *transportLab) onTheLoose(kind Handler, n int) {
	seed := uint64(time.Now().UnixNano())
	l.t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a test's own chance
	names := []string{"a", "b", "c"}
	stops, started := map[string]func(){}, 0
	relay := l.relay()
	for range n {
		switch name := names[random.IntN(len(names))]; random.IntN(7) {
		case 0, 1, 2:
			if stop := stops[name]; stop != nil {
				stop()
				delete(stops, name)
			} else {
				started++
				stops[name] = l.runner(fmt.Sprint(name, started), kind, nil) // each start has a name of its own
			}
		case 3:
			l.stream.wipe()
		case 4:
			l.stream.rebalance()
		case 5:
			l.sender.down.Store(!l.sender.down.Load())
		case 6:
			relay()
			relay = l.relay()
		}
		wait := time.NewTimer(time.Duration(random.IntN(60)) * time.Millisecond)
		<-wait.C // the pace of the faults: nothing is waited for
	}
	l.sender.down.Store(false)
	l.stream.rebalance() // what a stopped member had read and not finished goes to those that are left
	if len(stops) == 0 {
		l.runner("last", kind, nil)
	}
}

// Whatever stops, is lost or read twice on the way: every task comes to its end, each death has its dead letter, and the log is legal.
func TestTasksSurviveTheLossOfEverythingButTheDatabase(t *testing.T) {
	t.Parallel()
	onEachTransportLab(t, func(t *testing.T, l *transportLab) {
		var mu sync.Mutex
		failed := map[string]int{}
		ids := l.submit(l.store, 80)
		dies := map[string]bool{}
		for i, id := range ids {
			dies[id] = i%10 == 0
		}
		kind := &testHandler{run: func(ctx context.Context, j Job) Result {
			select {
			case <-ctx.Done():
				return Result{Err: ctx.Err()}
			case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond): //nolint:gosec // the time that the work takes
			}
			mu.Lock()
			defer mu.Unlock()
			if failed[j.Task.ID]++; dies[j.Task.ID] || failed[j.Task.ID]%3 == 1 && j.Task.AttemptCount == 0 {
				return Result{Err: errors.New("no answer")}
			}
			return Result{}
		}}
		l.onTheLoose(kind, 40)
		require.Eventually(t, func() bool {
			tasks, err := l.store.GetMany(t.Context(), taskstate.System(), ids)
			require.NoError(t, err)
			for _, task := range tasks {
				if !task.Status.Terminal() {
					return false
				}
			}
			return true
		}, waitLimit, 20*time.Millisecond) // SQLite under the race detector is slow
		tasks, err := l.store.GetMany(t.Context(), taskstate.System(), ids)
		require.NoError(t, err)
		dead := 0
		for _, task := range tasks {
			want := taskstate.StatusSucceeded
			if dies[task.ID] {
				want = taskstate.StatusDead
				dead++
			}
			require.Equal(t, want, task.Status, task.ID)
		}
		deadLetters := l.events(outbox.DLQTopic(transportTopic))
		require.Equal(t, dead, deadLetters[outbox.StatusNew]+deadLetters[outbox.StatusRetrying]+deadLetters[outbox.StatusSent]+deadLetters[outbox.StatusDead])
		require.Eventually(t, func() bool {
			waiting, pending, _, _ := l.stream.counts()
			return waiting == 0 && pending == 0
		}, waitLimit, 20*time.Millisecond, "no record holds a partition up")
		l.legal(ids)
	})
}
