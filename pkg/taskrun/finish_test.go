package taskrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

var errFlaky = errors.New("flaky")

func failing(err error) func(context.Context, Job) Result {
	return func(context.Context, Job) Result { return Result{Err: err} }
}

// Two attempts, zero backoff: RETRYING/1, DEAD/2, a dead letter, nothing pending, the mark in the row.
func TestFailuresEndInTheDeadLetterQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x", func(t *taskstate.Task) { t.MaxAttempts = 2 })
		p := w.start("a", &testHandler{run: failing(errFlaky)}, func(c *Config) {
			// With an idle time of 0 the reconciling may write the dead letter beside the process that ended the task.
			c.Policy.BaseBackoff, c.Policy.MaxBackoff, c.Reconcile.Enabled = 0, 0, false
		})
		stillFor(time.Second)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusDead, row.Status)
		require.Equal(t, 2, row.AttemptCount)
		require.Equal(t, taskstate.DLQWritten, row.DLQ)
		require.Equal(t, "flaky", row.LastError)
		require.Equal(t, []taskstate.Status{
			taskstate.StatusRunning, taskstate.StatusRetrying, taskstate.StatusRunning, taskstate.StatusDead,
		}, w.store.path("x"))
		_, pending, added, _ := w.stream.counts()
		require.Zero(t, pending)
		require.Equal(t, 1, added, "no second entry for a retry")
		deadLetters := w.stream.deadLetters()
		require.Len(t, deadLetters, 1)
		require.Equal(t, ingestq.DeadLetter{
			TaskID: "x", Fence: 2, SourceRecordID: id, LastError: "flaky", AttemptCount: 2, FailedAt: deadLetters[0].FailedAt,
		}, deadLetters[0])
		require.InDelta(t, 1, p.result(local.ResultRetry), 0)
		require.InDelta(t, 1, p.result(local.ResultDead), 0)
	})
}

func TestPermanentFailureIsDeadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		w.start("a", &testHandler{run: failing(fmt.Errorf("open: %w", errHopeless))})
		stillFor(time.Second)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusDead, row.Status)
		require.Equal(t, 1, row.AttemptCount)
		require.Equal(t, "open: hopeless", row.LastError)
	})
}

// A run that fails before a heartbeat tells its stage: the row has it all the same.
func TestAFailureSaysWhereTheRunWas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		at := taskstate.Progress{Stage: "embed", Percent: 40, Processed: 2, Total: 5}
		w.start("a", &testHandler{run: func(_ context.Context, j Job) Result {
			j.Report(at)
			return Result{Err: errHopeless}
		}})
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusDead, w.store.get("x").Status)
		require.Equal(t, at, w.store.get("x").Progress)
	})
}

// The dead letter cannot be written: nothing is acknowledged; the sweep writes it when the queue is back.
func TestDeadLetterIsOwedUntilWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x")
		down := func(op string) error {
			if op == "dead letters" {
				return ingestq.ErrUnavailable
			}
			return nil
		}
		w.stream.setFault(down)
		w.start("a", &testHandler{run: failing(errHopeless)})
		stillFor(time.Minute)
		require.Equal(t, taskstate.DLQOwed, w.store.get("x").DLQ)
		require.True(t, w.stream.claims(id))
		w.stream.setFault(nil)
		stillFor(10 * time.Second)
		require.Equal(t, taskstate.DLQWritten, w.store.get("x").DLQ)
		require.False(t, w.stream.claims(id))
		require.Len(t, w.stream.deadLetters(), 1)
	})
}

// A retry uses the entry that is pending, exactly when it is due.
func TestRetryRunsWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x")
		var at []time.Time
		p := w.start("a", &testHandler{run: func(_ context.Context, j Job) Result {
			at = append(at, time.Now())
			if j.Task.AttemptCount == 0 {
				return Result{Err: errFlaky}
			}
			return Result{}
		}})
		stillFor(900 * time.Millisecond)
		require.True(t, w.stream.claims(id), "a retry keeps its entry")
		require.Equal(t, id, w.store.get("x").Delivery)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		require.False(t, w.stream.claims(id))
		require.WithinDuration(t, at[0].Add(time.Second), at[1], 10*time.Millisecond)
		require.Equal(t, 1, testutil.CollectAndCount(p.m.Lateness))
	})
}

func TestPanicIsAFailedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		w.start("a", &testHandler{run: func(context.Context, Job) Result { panic("boom") }})
		stillFor(100 * time.Millisecond)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusRetrying, row.Status)
		require.Equal(t, 1, row.AttemptCount)
		require.Equal(t, "panic: boom", row.LastError, "no stack in what users read")
		require.Equal(t, CodeInternal, row.ErrorCode)
	})
}

func TestUnknownTypeIsSuspendedByItsHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x", func(t *taskstate.Task) { t.Type = "telepathy" })
		w.start("a", &testHandler{})
		stillFor(time.Second)
		require.Equal(t, []taskstate.Status{taskstate.StatusRunning, taskstate.StatusSuspended}, w.store.path("x"))
		require.Contains(t, w.store.log[len(w.store.log)-1].Message, `"telepathy"`)
		require.False(t, w.stream.claims(id))
	})
}

// A finish whose database is away is tried again until it is back; heartbeats and the fence do the rest.
func TestFinishOutlivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x")
		release := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }})
		stillFor(time.Second)
		w.store.setFault(func(string) error { return taskstate.ErrUnavailable })
		close(release)
		stillFor(40 * time.Second) // longer than the lease
		require.True(t, w.stream.claims(id), "not acknowledged before the outcome is committed")
		w.store.setFault(nil)
		stillFor(10 * time.Second)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusSucceeded, row.Status)
		require.Zero(t, row.CrashCount, "an outage counts no crash")
		require.Len(t, p.kind.ran(), 1)
		require.False(t, w.stream.claims(id))
	})
}

// A run that meets an absent database begins anew under the same claim when it is back: an outage counts no attempt.
func TestRunOutlivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		var runs int
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result {
			if runs++; runs < 20 {
				return Result{Err: fmt.Errorf("read the file's row: %w", taskstate.ErrUnavailable)}
			}
			return Result{}
		}})
		stillFor(2 * time.Minute)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusSucceeded, row.Status)
		require.Zero(t, row.AttemptCount)
		require.Equal(t, []taskstate.Status{taskstate.StatusRunning, taskstate.StatusSucceeded}, w.store.path("x"))
		require.Len(t, p.kind.ran(), 20)
	})
}

// A stop in the middle of an outage hands the task back as any stop does.
func TestStopDuringAnOutageHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result {
			return Result{Err: taskstate.ErrOutcomeUnknown}
		}})
		stillFor(5 * time.Second)
		p.end(t)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusQueued, row.Status)
		require.Zero(t, row.AttemptCount)
	})
}

// The finish was committed and its answer lost: the second try sees its own work, and the rest follows.
func TestUnknownFinishIsReadBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x")
		release := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }})
		stillFor(0)
		lost := false
		w.store.setFault(func(op string) error {
			if op == "apply!" && !lost {
				lost = true
				return taskstate.ErrOutcomeUnknown
			}
			return nil
		})
		close(release)
		stillFor(time.Second)
		require.True(t, lost)
		require.InDelta(t, 1, p.result(local.ResultSucceeded), 0)
		require.False(t, w.stream.claims(id))
	})
}

// Many outcomes go into few transactions, and each is decided in its own right.
func TestFinishesAreBatched(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 64 {
			w.task(fmt.Sprint("t", i))
		}
		release := make(chan struct{})
		var payloads []string
		kind := &testHandler{
			run: func(_ context.Context, j Job) Result {
				<-release
				if j.Task.ID == "t7" {
					return Result{Err: errHopeless}
				}
				return Result{Payload: j.Task.ID, Output: []byte(`{}`)}
			},
			onTransition: func(changed []taskstate.Decision, ps map[string]any) error {
				for _, d := range changed {
					if p, ok := ps[d.TaskID].(string); ok {
						payloads = append(payloads, p)
					}
				}
				return nil
			},
		}
		w.start("a", kind, func(c *Config) { c.Concurrency = 64 })
		stillFor(0)
		before := w.store.called("apply")
		w.store.setFault(func(op string) error {
			if op == "apply" {
				<-time.After(5 * time.Millisecond) // a commit takes time
			}
			return nil
		})
		var acks atomic.Int64
		w.stream.setFault(func(op string) error {
			if op == "ack" {
				acks.Add(1)
			}
			return nil
		})
		close(release)
		stillFor(time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 63, taskstate.StatusDead: 1}, w.store.statuses())
		require.LessOrEqual(t, w.store.called("apply")-before, 6)
		require.LessOrEqual(t, int(acks.Load()), w.store.called("apply")-before, "acknowledgements of a transaction go together")
		require.Len(t, payloads, 63)
		require.False(t, slices.Contains(payloads, "t7"))
	})
}

// A kind that cannot decide on one success fails that one attempt; the others succeed.
func TestOneBadFinishFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for _, id := range []string{"a", "bad", "panics", "c"} {
			w.task(id)
		}
		release := make(chan struct{})
		w.start("p", &testHandler{
			run: func(context.Context, Job) Result { <-release; return Result{} },
			decide: func(m taskstate.DBClock, d Done) (taskstate.Decision, error) {
				switch d.Task.ID {
				case "bad":
					return taskstate.Decision{}, errors.New("count does not match")
				case "panics":
					panic("boom")
				}
				return taskstate.Succeed(m, d.Task, d.Holder, nil, ""), nil
			},
		})
		stillFor(0)
		close(release)
		stillFor(100 * time.Millisecond)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("a").Status)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("c").Status)
		require.Equal(t, taskstate.StatusRetrying, w.store.get("bad").Status)
		require.Contains(t, w.store.get("bad").LastError, "count does not match")
		require.Equal(t, taskstate.StatusRetrying, w.store.get("panics").Status)
	})
}

// A cancelled task's holder learns it at its heartbeat and stops; nothing of it is written.
func TestCancelWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		var cause error
		p := w.start("a", &testHandler{run: func(ctx context.Context, j Job) Result {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return Result{Err: ctx.Err()}
		}})
		stillFor(time.Second)
		w.store.change("x", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}, taskstate.ReasonCancelled, "")
		})
		stillFor(11 * time.Second) // a third of the lease
		require.ErrorIs(t, cause, taskstate.ErrLost)
		require.Equal(t, taskstate.StatusCancelled, w.store.get("x").Status)
		require.InDelta(t, 1, testutil.ToFloat64(p.m.Lost), 0)
		require.Empty(t, p.claims.All())
	})
}

// The fence: a holder that was paused finishes after a takeover and is told that it lost.
func TestTakeoverWhileTheOldOneRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x")
		old := make(chan struct{})
		a := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-old; return Result{} }},
			func(c *Config) { c.HeartbeatEvery, c.Recovery = time.Hour, false }) // as if it were paused
		stillFor(time.Second)
		release := make(chan struct{})
		b := w.start("b", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }})
		stillFor(31 * time.Second)
		require.Len(t, b.kind.ran(), 1)
		require.Equal(t, 1, w.store.get("x").CrashCount)
		require.InDelta(t, 1, testutil.ToFloat64(b.m.Takeovers), 0)
		close(old)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusRunning, w.store.get("x").Status, "the old holder wrote nothing")
		require.InDelta(t, 1, testutil.ToFloat64(a.m.Lost), 0)
		require.True(t, w.stream.claims(id), "the old holder leaves the delivery: it is the new one's")
		close(release)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		require.False(t, w.stream.claims(id))
	})
}

// The same process claims a task again while its old run has not returned.
func TestNewClaimEndsTheOldRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		stopped := make(chan error, 1)
		p := w.start("a", &testHandler{run: func(ctx context.Context, j Job) Result {
			if j.Token.Fence == 1 {
				<-ctx.Done()
				stopped <- context.Cause(ctx)
				return Result{Err: ctx.Err()}
			}
			return Result{}
		}})
		stillFor(time.Second)
		w.store.change("x", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Suspend(m, t, taskstate.Actor{Kind: taskstate.ActorOperator, Name: "o"}, "")
		})
		w.store.change("x", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Resume(m, t, taskstate.Actor{Kind: taskstate.ActorOperator, Name: "o"}, "")
		})
		w.stream.send("x")
		stillFor(time.Second)
		require.ErrorIs(t, <-stopped, taskstate.ErrLost)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		require.Empty(t, p.claims.All())
	})
}

// isFinish tells a runner's finish from its claim, as long as no answer to it was lost.
func isFinish(b taskstate.Batch) bool { return b.Held != nil }

// A second finish goes on beside the first only while a batch of outcomes waits, never a third, and what is single waits for nobody.
func TestTwoFinishesOfABacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.backlog(64)
		finishes := &gateway{}
		var sizes []int
		w.store.applying = func(b taskstate.Batch) error {
			if !isFinish(b) {
				return nil
			}
			w.store.mu.Lock()
			sizes = append(sizes, len(b.IDs))
			w.store.mu.Unlock()
			return finishes.pass()
		}
		release := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }},
			func(c *Config) { c.Concurrency, c.FinishBatch = 64, 4 })
		stillFor(time.Second)
		end := func(n, under int) {
			for range n {
				release <- struct{}{}
			}
			stillFor(0)
			now, _ := finishes.read()
			require.Equal(t, under, now)
		}
		end(1, 1)
		end(3, 1)
		end(1, 2)
		end(20, 2)
		require.Equal(t, []int{1, 4}, sizes)
		finishes.next(nil) // the first goes on with what waits
		stillFor(0)
		require.Equal(t, []int{1, 4, 4}, sizes)
		finishes.free()
		close(release)
		stillFor(time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 64}, w.store.statuses())
		_, most := finishes.read()
		require.Equal(t, 2, most)
		require.InDelta(t, 64, p.result(local.ResultSucceeded), 0)
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending)
		require.Empty(t, p.claims.All())
	})
}

// Two claims of one task are in two finishes at the same time, the newer one's commit first: the older one has lost.
func TestTwoClaimsOfATaskInTwoFinishes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		finishes := &gateway{}
		w.store.applying = func(b taskstate.Batch) error {
			if isFinish(b) {
				return finishes.pass()
			}
			return nil
		}
		p := w.start("a", &testHandler{}, func(c *Config) { c.FinishBatch = 1 })
		stillFor(time.Second)
		for _, f := range []func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision{
			func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Suspend(m, t, taskstate.Actor{Kind: taskstate.ActorOperator, Name: "o"}, "")
			},
			func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Resume(m, t, taskstate.Actor{Kind: taskstate.ActorOperator, Name: "o"}, "")
			},
		} {
			w.store.change("x", f)
		}
		second := w.stream.send("x")
		stillFor(time.Second)
		now, _ := finishes.read()
		require.Equal(t, 2, now)
		require.Len(t, p.claims.All(), 2)
		finishes.mu.Lock()
		finishes.wait[0], finishes.wait[1] = finishes.wait[1], finishes.wait[0]
		finishes.mu.Unlock()
		finishes.next(nil)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		finishes.free()
		stillFor(time.Second)
		require.Equal(t, []taskstate.Status{
			taskstate.StatusRunning, taskstate.StatusSuspended, taskstate.StatusQueued, taskstate.StatusRunning, taskstate.StatusSucceeded,
		}, w.store.path("x"))
		require.InDelta(t, 1, testutil.ToFloat64(p.m.Lost), 0)
		require.InDelta(t, 1, p.result(local.ResultSucceeded), 0)
		require.Empty(t, p.claims.All())
		require.False(t, w.stream.claims(second))
	})
}

// The answers to both finishes are lost, one after the other: each finds its own work.
func TestTwoUnknownFinishes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.backlog(8)
		finishes := &gateway{}
		w.store.applying = func(b taskstate.Batch) error {
			if isFinish(b) {
				return finishes.pass()
			}
			return nil
		}
		p := w.start("a", &testHandler{}, func(c *Config) { c.Concurrency, c.FinishBatch = 8, 2 })
		stillFor(time.Second)
		now, _ := finishes.read()
		require.Equal(t, 2, now)
		finishes.next(taskstate.ErrOutcomeUnknown)
		finishes.next(taskstate.ErrOutcomeUnknown)
		finishes.free()
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 8}, w.store.statuses())
		require.InDelta(t, 8, p.result(local.ResultSucceeded), 0)
		require.Zero(t, testutil.ToFloat64(p.m.Lost))
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending)
	})
}

// A stop in an outage while two finishes are under way ends in time; leases end what was not written.
func TestStopInAnOutageOfTwoFinishes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.backlog(64)
		finishes := &gateway{}
		w.store.applying = func(b taskstate.Batch) error {
			if isFinish(b) {
				return finishes.pass()
			}
			return nil
		}
		p := w.start("a", &testHandler{}, func(c *Config) { c.Concurrency, c.FinishBatch, c.StopGrace = 64, 4, time.Second })
		stillFor(time.Second)
		now, _ := finishes.read()
		require.Equal(t, 2, now)
		w.store.setFault(func(string) error { return taskstate.ErrUnavailable })
		finishes.next(taskstate.ErrUnavailable)
		finishes.next(taskstate.ErrUnavailable)
		finishes.free()
		began := time.Now()
		p.end(t)
		require.Less(t, time.Since(began), 10*time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusRunning: 64}, w.store.statuses())
		w.store.setFault(nil)
		w.start("b", &testHandler{})
		stillFor(2 * time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 64}, w.store.statuses())
	})
}
