package checksum_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/memq"
	"github.com/millweir/millweir/pkg/labserver"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/tasks/examples/checksum"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

const waitLimit = 2 * time.Minute

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// sumOfHello is the SHA-256 of "hello".
const sumOfHello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

var anna = tasks.Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, Channel: "test"}

// world is a database, a queue in memory, and the task service over both.
type world struct {
	t     *testing.T
	store *taskstore.Store
	queue *memq.Queue
	door  *tasks.Service
}

// onEach runs a test on every database.
func onEach(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for name, config := range map[string]func(t *testing.T) taskstore.Config{
		"sqlite": func(t *testing.T) taskstore.Config {
			return taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "m.db")}
		},
		"mysql": func(t *testing.T) taskstore.Config { return taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t)} },
		"postgres": func(t *testing.T) taskstore.Config {
			return taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := taskstore.Open(t.Context(), config(t))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			_, err = store.Migrate(t.Context())
			require.NoError(t, err)
			w := &world{t: t, store: store, queue: memq.New(memq.Options{Clock: time.Now})}
			w.door = w.newDoor(0)
			test(t, w)
		})
	}
}

func (w *world) newDoor(backlog int) *tasks.Service {
	door, err := tasks.New(tasks.Deps{
		Store: w.store, Publisher: w.queue.Join("door").(ingestq.Publisher), Log: slog.New(slog.DiscardHandler),
		Types: map[string]tasks.Type{checksum.Type: checksum.Handler{}},
	}, tasks.Config{MaxAttempts: 3, MaxBacklog: backlog, PublishTimeout: time.Minute})
	require.NoError(w.t, err)
	return door
}

// runner starts a process; it ends with the test, or with stop.
func (w *world) runner(name string, h checksum.Handler) (stop func()) {
	cfg := taskrun.NewDefaultConfig()
	cfg.Process, cfg.Policy.BaseBackoff, cfg.Policy.MaxBackoff = name, time.Millisecond, time.Millisecond
	r := taskrun.New(cfg, taskrun.Deps{
		Store: w.store, Queue: w.queue.Join(name), Handlers: map[string]taskrun.Handler{checksum.Type: h}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) submit(r tasks.Request) tasks.Submitted {
	w.t.Helper()
	got, errs := w.door.Submit(w.t.Context(), anna, r)
	require.NoError(w.t, errs[0])
	return got[0]
}

func request(path, key string) tasks.Request {
	payload, _ := json.Marshal(checksum.Payload{Path: path})
	return tasks.Request{Type: checksum.Type, Payload: payload, IdempotencyKey: key, Hash: strings.Repeat("0", 64-len(path)) + path}
}

// until waits for a status and returns the row.
func (w *world) until(id string, s taskstate.Status) taskstate.Task {
	w.t.Helper()
	var row taskstate.Task
	require.Eventually(w.t, func() bool {
		var err error
		row, err = w.store.Get(w.t.Context(), anna.Scope, id)
		return err == nil && row.Status == s
	}, waitLimit, 5*time.Millisecond, "%s is not %s", id, s)
	return row
}

func (w *world) reasons(id string) (all []taskstate.Reason) {
	log, err := w.store.Transitions(w.t.Context(), anna.Scope, id, 0, 100)
	require.NoError(w.t, err)
	for _, tr := range log {
		all = append(all, tr.Reason)
	}
	return all
}

func (w *world) explains(id string, words ...string) {
	w.t.Helper()
	e, err := w.door.Explain(w.t.Context(), anna, id)
	require.NoError(w.t, err)
	for _, part := range words {
		require.Contains(w.t, e.Words(), part)
	}
}

// audit checks the whole installation with its log.
func (w *world) audit() {
	w.t.Helper()
	found, err := fsck.Check(w.t.Context(), fsck.Evidence{DB: w.store}, fsck.Options{History: true})
	require.NoError(w.t, err)
	require.Zero(w.t, found.Report.Violations(), "%v", found.Report)
}

var files = fstest.MapFS{"hello": {Data: []byte("hello")}}

func TestASumIsComputedOncePerKey(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		first := w.submit(request("hello", "key"))
		require.False(t, first.Replayed)
		again := w.submit(request("hello", "key"))
		require.True(t, again.Replayed)
		require.Equal(t, first.Task.ID, again.Task.ID)
		got, errs := w.door.Submit(t.Context(), anna, request("other", "key"), request("hello", "k2"), request("hello", "k2"), tasks.Request{Type: "none"})
		require.ErrorIs(t, errs[0], tasks.ErrKeyReused)
		require.NoError(t, errors.Join(errs[1], errs[2]))
		require.Equal(t, []any{got[1].Task.ID, false, true}, []any{got[2].Task.ID, got[1].Replayed, got[2].Replayed})
		require.ErrorIs(t, errs[3], tasks.ErrUnknownType)
		w.explains(first.Task.ID, "The task is QUEUED", "a worker with a free slot claims it")

		w.runner("a", checksum.Handler{Files: files})
		var sum checksum.Sum
		require.NoError(t, json.Unmarshal(w.until(first.Task.ID, taskstate.StatusSucceeded).Result, &sum))
		require.Equal(t, checksum.Sum{SHA256: sumOfHello, Bytes: 5}, sum)
		w.until(got[1].Task.ID, taskstate.StatusSucceeded)
		require.Equal(t, []taskstate.Reason{taskstate.ReasonAccepted, taskstate.ReasonClaimed, taskstate.ReasonDone}, w.reasons(first.Task.ID))
		w.explains(first.Task.ID, "The task is SUCCEEDED", "nothing: it is done")
		w.audit()
	})
}

func TestAFullBacklogIsTold(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		door := w.newDoor(1)
		_, errs := door.Submit(t.Context(), anna, request("hello", "key"))
		require.NoError(t, errs[0])
		got, errs := door.Submit(t.Context(), anna, request("hello", ""), request("hello", "key"))
		require.ErrorIs(t, errs[0], tasks.ErrBacklogFull)
		require.NoError(t, errs[1])
		require.True(t, got[1].Replayed, "a replay makes nothing new")
	})
}

// A failure is retried, an end without success by a person's wish only.
func TestAFailureIsRetried(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		fails := 2
		h := checksum.Handler{Files: files, Tell: func(context.Context, string, checksum.Sum) error {
			mu.Lock()
			defer mu.Unlock()
			if fails--; fails >= 0 {
				return errors.New("the line is busy")
			}
			return nil
		}}
		w.runner("a", h)
		retried, gone := w.submit(request("hello", "")).Task, w.submit(request("missing", "")).Task
		row := w.until(retried.ID, taskstate.StatusSucceeded)
		require.Equal(t, 2, row.AttemptCount)
		row = w.until(gone.ID, taskstate.StatusDead)
		require.Equal(t, checksum.CodeNoFile, row.ErrorCode)
		w.explains(gone.ID, "The task is DEAD", "file does not exist", "nothing until somebody retries it")
		_, err := w.door.Retry(t.Context(), anna, gone.ID)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(w.reasons(gone.ID)) == 6 }, waitLimit, 5*time.Millisecond, "replayed, it dies again")
		w.audit()
	})
}

// A process that died with its effect done and its claim held: the next one repeats it with a greater fence.
func TestATaskIsTakenOver(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		task := w.submit(request("hello", "")).Task
		policy := taskrun.NewDefaultConfig().Policy
		policy.Lease = 500 * time.Millisecond // what a statement takes, and some
		outs, err := w.store.Apply(t.Context(), taskstate.Batch{
			IDs: []string{task.ID}, Scope: taskstate.System(),
			Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{
					Owner: "dead/1", Process: "dead", Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "dead"},
				})
			}),
		})
		require.NoError(t, err)
		require.Equal(t, taskstate.AnswerClaimed, outs[0].Answer)
		w.explains(task.ID, "dead holds it", "It is at stage none, 0 of 0 KiB, 0 %")
		keys := make(chan string, 1)
		w.runner("b", checksum.Handler{Files: files, Tell: func(_ context.Context, key string, _ checksum.Sum) error {
			keys <- key
			return nil
		}})
		row := w.until(task.ID, taskstate.StatusSucceeded)
		require.Equal(t, 1, row.CrashCount)
		require.Equal(t, task.ID+":2", <-keys)
		require.Contains(t, w.reasons(task.ID), taskstate.ReasonTakeover)
		w.explains(task.ID, "1 of its holders stopped answering")
		w.audit()
	})
}

func TestATaskIsSuspendedAndResumed(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		operator := tasks.Caller{Scope: taskstate.Scope{UserID: "olga", Role: taskstate.RoleOperator}}
		task, withdrawn := w.submit(request("hello", "")).Task, w.submit(request("hello", "")).Task
		row, err := w.door.Suspend(t.Context(), operator, task.ID, "the disk is checked")
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusSuspended, row.Status)
		_, err = w.door.Cancel(t.Context(), anna, withdrawn.ID)
		require.NoError(t, err)
		w.runner("a", checksum.Handler{Files: files})
		w.explains(task.ID, "nothing until an operator resumes it")
		var refused *taskstate.RefusedError
		_, err = w.door.Retry(t.Context(), anna, task.ID)
		require.ErrorAs(t, err, &refused)
		_, err = w.door.Resume(t.Context(), operator, task.ID, "it is well")
		require.NoError(t, err)
		w.until(task.ID, taskstate.StatusSucceeded)
		w.until(withdrawn.ID, taskstate.StatusCancelled)
		w.audit()
	})
}
