package taskrun_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// BenchmarkPunctuality tells how late a thousand retries start that are due at once.
// (TestManyRetriesDueAtOnce holds the goal of 250 ms in fake time.)
// go test ./taskrun -run '^$' -bench Punctuality -benchtime 1000x
func BenchmarkPunctuality(b *testing.B) {
	l := newLab(b, taskstore.Config{MySQLDSN: labserver.MySQLDatabase(b)}, labserver.RedisURL(b))
	late := l.retried(b.N, 256)
	b.ReportMetric(late[b.N/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(late[b.N*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(late[b.N-1].Seconds()*1000, "max-ms")
}

// No retry starts before its time by the database's clock, however many are due at once.
func TestLivePunctuality(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		late := l.retried(100, 64)
		require.GreaterOrEqual(t, late[0], time.Duration(0), "none before its time")
	})
}

// retried lets n retries that are due at once run, and returns how late each began, sorted.
func (l *lab) retried(n, slots int) []time.Duration {
	l.t.Helper()
	ids := l.failed(n, 2*time.Second)
	_, stop := l.runner("a", func(context.Context, taskrun.Job) taskrun.Result { return taskrun.Result{} },
		func(c *taskrun.Config) { c.Concurrency = slots })
	l.eventually("all done", func() bool { return l.counts()[taskstate.StatusSucceeded] == int64(n) })
	stop()
	late := l.lateness(ids)
	require.Len(l.t, late, n)
	return late
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
	apply := func(f func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision) {
		_, err := l.store.Apply(context.Background(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(f)})
		require.NoError(l.t, err)
	}
	apply(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Claim(p, m, t, taskstate.ClaimRequest{Owner: "x/1", Process: "x", Actor: actor})
	})
	apply(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		h := taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: actor}
		return taskstate.Fail(p, m, t, h, taskstate.Failure{Code: "TEST", Cause: "flaky"})
	})
	return ids
}

// lateness returns how late each retry began, by the database's clock, sorted.
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
