package taskrun_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// BenchmarkDrain empties a backlog of tasks that do nothing: claim, run, finish, acknowledge.
// go test ./taskrun -run '^$' -bench Drain -benchtime 20000x
func BenchmarkDrain(b *testing.B) {
	for _, slots := range []int{8, 64, 256} {
		b.Run(fmt.Sprint("slots=", slots), func(b *testing.B) {
			l := newLab(b, taskstore.Config{MySQLDSN: labserver.MySQLDatabase(b)}, labserver.RedisURL(b))
			for left := b.N; left > 0; left -= 500 {
				l.submit(min(left, 500), true)
			}
			b.ResetTimer()
			began := time.Now()
			var left sync.WaitGroup
			left.Add(b.N)
			_, stop := l.runner("a", func(context.Context, taskrun.Job) taskrun.Result {
				left.Done()
				return taskrun.Result{}
			}, func(c *taskrun.Config) { c.Concurrency = slots })
			left.Wait()
			stop()
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "tasks/s")
			require.Equal(b, int64(b.N), l.counts()[taskstate.StatusSucceeded])
		})
	}
}

// A thousand retries that are due at once, with free slots, on a machine that may be busy: none early, none much too late.
// (TestManyRetriesDueAtOnce holds the goal of 250 ms in fake time; on a quiet machine it is kept here too, see the log line.)
func TestLivePunctuality(t *testing.T) {
	onEach(t, func(t *testing.T, l *lab) {
		const n = 1000
		ids := l.failed(n, 2*time.Second)
		_, stop := l.runner("a", func(context.Context, taskrun.Job) taskrun.Result { return taskrun.Result{} },
			func(c *taskrun.Config) { c.Concurrency = 256 })
		l.eventually(30*time.Second, "all done", func() bool { return l.counts()[taskstate.StatusSucceeded] == n })
		stop()
		late := l.lateness(ids)
		require.Len(t, late, n)
		t.Logf("lateness: p50 %s, p99 %s, max %s", late[n/2], late[n*99/100], late[n-1])
		require.GreaterOrEqual(t, late[0], time.Duration(0), "none before its time")
		if !raced {
			require.Less(t, late[n*99/100], 2*time.Second)
		}
	})
}

// failed makes tasks that failed once and are due again after wait.
func (l *lab) failed(n int, wait time.Duration) []string {
	actor := taskstate.Actor{Kind: taskstate.ActorWorker, Name: "x"}
	p := taskrun.NewDefaultConfig().Policy
	p.BaseBackoff = wait
	var ids []string
	for left := n; left > 0; left -= 500 {
		for _, t := range l.submit(min(left, 500), false) {
			ids = append(ids, t.ID)
		}
	}
	apply := func(f func(m taskstate.Moment, t taskstate.Task) taskstate.Decision) {
		_, err := l.store.Apply(context.Background(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(f)})
		require.NoError(l.t, err)
	}
	apply(func(m taskstate.Moment, t taskstate.Task) taskstate.Decision {
		return taskstate.Claim(p, m, t, taskstate.ClaimRequest{Owner: "x/1", Process: "x", Actor: actor})
	})
	apply(func(m taskstate.Moment, t taskstate.Task) taskstate.Decision {
		h := taskstate.Holder{Token: taskstate.Token{Timeline: m.Timeline, Fence: t.Fence}, Actor: actor}
		return taskstate.Fail(p, m, t, h, taskstate.Failure{Code: "TEST", Cause: "flaky"})
	})
	return ids
}

// lateness answers how late each retry began, by the database's clock, sorted.
func (l *lab) lateness(ids []string) []time.Duration {
	var late []time.Duration
	for _, id := range ids {
		log, err := l.store.Transitions(context.Background(), taskstate.System(), id, 0, 100)
		require.NoError(l.t, err)
		for i, tr := range log {
			if tr.From == taskstate.StatusRetrying && tr.To == taskstate.StatusRunning {
				late = append(late, tr.CreatedAt.Sub(log[i-1].NextRetryAt))
			}
		}
	}
	slices.Sort(late)
	return late
}
