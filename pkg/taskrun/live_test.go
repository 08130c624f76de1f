package taskrun_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/redisclient"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

// lab is a real store and a real (or embedded) queue.
type lab struct {
	t      testing.TB
	store  *taskstore.Store
	redis  rueidis.Client
	config redisq.Config
	sent   *redisq.Publisher
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// onEach runs a scenario on the embedded pair and on real servers.
func onEach(t *testing.T, scenario func(t *testing.T, l *lab)) {
	t.Helper()
	t.Run("sqlite and embedded redis", func(t *testing.T) {
		t.Parallel()
		url, stop, err := embedded.Start()
		require.NoError(t, err)
		t.Cleanup(stop)
		scenario(t, newLab(t, taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)}, url))
	})
	t.Run("mariadb and redis", func(t *testing.T) {
		t.Parallel()
		scenario(t, newLab(t, taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t)}, labserver.RedisURL(t)))
	})
}

func newLab(t testing.TB, db taskstore.Config, redisURL string) *lab {
	t.Helper()
	store, err := taskstore.Open(t.Context(), db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	client, err := redisclient.New(redisURL)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	l := &lab{t: t, store: store, redis: client, config: redisq.NewDefaultConfig(redisURL)}
	l.sent = redisq.NewPublisher(client, l.config, quiet(), time.Now, redisq.NewMetrics(nil))
	return l
}

// submit accepts n tasks; sent tells whether their deliveries are added too.
func (l *lab) submit(n int, sent bool) []taskstate.Task {
	l.t.Helper()
	ctx := context.Background()
	tasks, err := l.store.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		out := make([]taskstate.NewTask, n)
		for i := range out {
			out[i] = taskstate.NewTask{
				Task:  taskstate.Task{ID: uuid.Must(uuid.NewV7()).String(), UserID: "local", Type: "test", Channel: "http", MaxAttempts: 2},
				Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "local"},
			}
		}
		return out, nil
	})
	require.NoError(l.t, err)
	if sent {
		require.NoError(l.t, taskrun.Publish(ctx, l.sent, tasks))
	}
	return tasks
}

// work is a kind made of one function.
type work func(ctx context.Context, job taskrun.Job) taskrun.Result

func (f work) Handle(ctx context.Context, job taskrun.Job) taskrun.Result { return f(ctx, job) }

func (work) Describe() taskrun.Description { return taskrun.Description{Noun: "test"} }

func (work) Classify(err error) taskstate.Failure {
	return taskstate.Failure{Code: "TEST", Cause: err.Error(), Message: "it failed"}
}

func (work) OnTransition(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision, map[string]any) error {
	return nil
}

// runner starts a process over the lab; stop ends it and waits.
func (l *lab) runner(name string, w work, edit func(c *taskrun.Config)) (r *taskrun.Runner, stop func()) {
	l.t.Helper()
	cfg := taskrun.NewDefaultConfig()
	cfg.Process, cfg.Policy.DLQ, cfg.Concurrency = name, true, 8
	if edit != nil {
		edit(&cfg)
	}
	require.NoError(l.t, cfg.Validate())
	reg := prometheus.NewRegistry()
	r = taskrun.New(cfg, taskrun.Deps{
		Store: l.store, Queue: redisq.New(l.redis, l.config, quiet(), time.Now, redisq.NewMetrics(reg)),
		Handlers: map[string]taskrun.Handler{"test": w}, Log: quiet(), Metrics: reg,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(l.t, <-done)
	})
	l.t.Cleanup(stop)
	return r, stop
}

// counts returns the rows by status.
func (l *lab) counts() map[taskstate.Status]int64 {
	c, err := l.store.Counts(context.Background(), taskstate.System(), "")
	require.NoError(l.t, err)
	for s, n := range c {
		if n == 0 {
			delete(c, s)
		}
	}
	return c
}

// waitLimit only keeps a broken test from hanging; how fast things go is for benchmarks.
const waitLimit = 3 * time.Minute

// eventually waits for a condition.
func (l *lab) eventually(what string, ok func() bool) {
	l.t.Helper()
	require.Eventually(l.t, ok, waitLimit, 20*time.Millisecond, what)
}

// pending is what XPENDING says of the group.
func (l *lab) pending() int64 {
	s, err := l.sent.Stats(context.Background())
	require.NoError(l.t, err)
	return s.Pending
}

func TestLiveBacklog(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		l.submit(200, true)
		l.runner("a", func(context.Context, taskrun.Job) taskrun.Result { return taskrun.Result{} }, nil)
		l.runner("b", func(context.Context, taskrun.Job) taskrun.Result { return taskrun.Result{} }, nil)
		l.eventually("all done", func() bool { return l.counts()[taskstate.StatusSucceeded] == 200 })
		l.eventually("all acknowledged", func() bool { return l.pending() == 0 })
	})
}

// Contract §7's reproduction: RETRYING/1, then DEAD/2, a dead letter, nothing pending.
func TestLiveFailures(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		id := l.submit(1, true)[0].ID
		l.runner("a", func(context.Context, taskrun.Job) taskrun.Result {
			return taskrun.Result{Err: errors.New("upsert: connection refused")}
		}, func(c *taskrun.Config) {
			c.Policy.BaseBackoff, c.Policy.MaxBackoff, c.Reconcile.Idle = 0, 0, 0
		})
		l.eventually("dead", func() bool { return l.counts()[taskstate.StatusDead] == 1 })
		l.eventually("marked", func() bool {
			row, err := l.store.Get(context.Background(), taskstate.System(), id)
			return err == nil && row.DLQ == taskstate.DLQWritten
		})
		// At least once: with an idle time of 0 the reconciling may write it while the process that ended the task does.
		deadLetters, err := l.redis.Do(t.Context(), l.redis.B().Xrange().Key("ingest:tasks:dlq").Start("-").End("+").Build()).AsXRange()
		require.NoError(t, err)
		require.NotEmpty(t, deadLetters)
		for _, e := range deadLetters {
			require.Equal(t, []string{id, "2"}, []string{e.FieldValues["taskId"], e.FieldValues["fence"]})
		}
		l.eventually("nothing pending", func() bool { return l.pending() == 0 })
		log, err := l.store.Transitions(t.Context(), taskstate.System(), id, 0, 100)
		require.NoError(t, err)
		var path []string
		for _, tr := range log {
			path = append(path, fmt.Sprintf("%s/%d", tr.To, tr.AttemptCount))
		}
		require.Equal(t, []string{"QUEUED/0", "RUNNING/0", "RETRYING/1", "RUNNING/1", "DEAD/2"}, path)
	})
}

// FLUSHALL with a backlog: every task is enqueued again and runs once.
func TestLiveFlush(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		l.submit(150, true)
		require.NoError(t, l.redis.Do(t.Context(), l.redis.B().Flushdb().Build()).Error())
		l.runner("a", func(context.Context, taskrun.Job) taskrun.Result { return taskrun.Result{} }, func(c *taskrun.Config) {
			c.SweepInterval, c.Policy.Slack = 100*time.Millisecond, 300*time.Millisecond
		})
		l.eventually("all done", func() bool { return l.counts()[taskstate.StatusSucceeded] == 150 })
		for _, id := range l.ids() {
			require.Equal(t, int64(1), l.row(id).Fence, "run once")
		}
	})
}

// ids lists some tasks.
func (l *lab) ids() []string {
	page, err := l.store.List(context.Background(), taskstate.System(), taskstate.Query{Limit: 200, Sort: taskstate.SortCreated})
	require.NoError(l.t, err)
	out := make([]string, len(page.Tasks))
	for i, t := range page.Tasks {
		out[i] = t.ID
	}
	return out
}

func (l *lab) row(id string) taskstate.Task {
	t, err := l.store.Get(context.Background(), taskstate.System(), id)
	require.NoError(l.t, err)
	return t
}

// A stop hands back what does not end in time; the next process runs it with no attempt counted.
func TestLiveStop(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		id := l.submit(1, true)[0].ID
		began := make(chan struct{}, 1)
		_, stop := l.runner("a", func(ctx context.Context, _ taskrun.Job) taskrun.Result {
			began <- struct{}{}
			<-ctx.Done()
			return taskrun.Result{Err: ctx.Err()}
		}, func(c *taskrun.Config) { c.StopGrace, c.HandBack = 50*time.Millisecond, waitLimit }) // how soon is judged by TestRecoveryTimes
		<-began
		stop()
		row := l.row(id)
		require.Equal(t, taskstate.StatusQueued, row.Status)
		require.Zero(t, row.AttemptCount)
		require.Zero(t, l.pending())
		l.runner("b", func(context.Context, taskrun.Job) taskrun.Result { return taskrun.Result{} }, nil)
		l.eventually("done", func() bool { return l.row(id).Status == taskstate.StatusSucceeded })
	})
}

// A holder that stops renewing is taken over; what it writes afterwards is refused.
func TestLiveTakeover(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		id := l.submit(1, true)[0].ID
		began, release := make(chan struct{}, 1), make(chan struct{})
		short := func(c *taskrun.Config) { c.Policy.Lease = 600 * time.Millisecond }
		l.runner("a", func(context.Context, taskrun.Job) taskrun.Result {
			began <- struct{}{}
			<-release
			return taskrun.Result{Output: []byte(`"zombie"`)}
		}, func(c *taskrun.Config) {
			short(c)
			c.HeartbeatEvery, c.Recovery = time.Hour, false
		})
		<-began
		l.runner("b", func(context.Context, taskrun.Job) taskrun.Result {
			close(release) // the old run ends while this one goes on
			<-time.After(300 * time.Millisecond)
			return taskrun.Result{Output: []byte(`"heir"`)}
		}, short)
		l.eventually("done", func() bool { return l.row(id).Status == taskstate.StatusSucceeded })
		row := l.row(id)
		require.JSONEq(t, `"heir"`, string(row.Result))
		require.Equal(t, 1, row.CrashCount)
		require.Equal(t, int64(2), row.Fence)
		l.eventually("acknowledged", func() bool { return l.pending() == 0 })
	})
}

// A long run keeps its lease against a process that looks for expired ones all the time.
func TestLiveHeartbeat(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		id := l.submit(1, true)[0].ID
		short := func(c *taskrun.Config) { c.Policy.Lease = 12 * time.Second } // a machine that stalls for seconds renews in time
		l.runner("a", func(_ context.Context, j taskrun.Job) taskrun.Result {
			for i := range 72 { // one and a half leases
				<-time.After(250 * time.Millisecond)
				j.Report(taskstate.Progress{Stage: taskstate.StageRun, Percent: i})
			}
			return taskrun.Result{}
		}, short)
		l.runner("r", func(context.Context, taskrun.Job) taskrun.Result { panic("robbed") }, func(c *taskrun.Config) {
			short(c)
			c.MainLoop = false
		})
		l.eventually("done", func() bool { return l.row(id).Status == taskstate.StatusSucceeded })
		require.Equal(t, int64(1), l.row(id).Fence)
	})
}

// Last chances run alone on real servers too: two tasks, whose processes crashed twice, never run at the same time.
func TestLiveIsolatedRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *lab) {
		tasks := l.submit(4, false)
		l.crashTwice(tasks[:2])
		require.NoError(t, taskrun.Publish(t.Context(), l.sent, tasks))
		poison := map[string]bool{tasks[0].ID: true, tasks[1].ID: true}
		var mu sync.Mutex
		running, together := 0, 0
		l.runner("a", func(_ context.Context, j taskrun.Job) taskrun.Result {
			mu.Lock()
			running++
			if poison[j.Task.ID] && running > 1 {
				together++
			}
			mu.Unlock()
			<-time.After(100 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return taskrun.Result{}
		}, nil)
		l.eventually("all done", func() bool { return l.counts()[taskstate.StatusSucceeded] == 4 })
		require.Zero(t, together)
		l.eventually("acknowledged", func() bool { return l.pending() == 0 })
	})
}

// crashTwice lets tasks be claimed and taken over until one more crash would end them, and hands them back.
func (l *lab) crashTwice(tasks []taskstate.Task) {
	p := taskrun.NewDefaultConfig().Policy
	p.Lease = 100 * time.Millisecond
	ids := []string{tasks[0].ID, tasks[1].ID}
	claim := func(n int) { // each by another process
		process := fmt.Sprint("x", n)
		l.eventually("lease ended", func() bool {
			outs, err := l.store.Apply(context.Background(), taskstate.Batch{
				IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Claim(p, m, t, taskstate.ClaimRequest{
						Owner: process + "/1", Process: process, Takeover: true, Alone: true,
						Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: process},
					})
				}),
			})
			if err != nil && strings.Contains(err.Error(), "has less than a third left") {
				return false // each of its tries stood still for two thirds of the lease; the process tries again
			}
			require.NoError(l.t, err)
			return outs[0].Answer == taskstate.AnswerClaimed && outs[1].Answer == taskstate.AnswerClaimed
		})
	}
	for n := range 3 {
		claim(n)
	}
	_, err := l.store.Apply(context.Background(), taskstate.Batch{
		IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.HandBack(m, t, taskstate.Holder{
				Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "x"},
			}, "test")
		}),
	})
	require.NoError(l.t, err)
	for _, id := range ids {
		require.Equal(l.t, 2, l.row(id).CrashCount)
	}
}
