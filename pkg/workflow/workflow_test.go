package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
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
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	"github.com/millweir/millweir/pkg/workflow"
)

const waitLimit = 2 * time.Minute

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

var (
	anna     = tasks.Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, Channel: "test"}
	operator = tasks.Caller{Scope: taskstate.Scope{UserID: "olga", Role: taskstate.RoleOperator}}
)

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
			return taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)}
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
			w.door, err = tasks.New(tasks.Deps{
				Store: store, Publisher: w.queue.Join("door").(ingestq.Publisher), Log: slog.New(slog.DiscardHandler),
				Types: map[string]tasks.Type{workflow.Type: workflow.NewRecords(store.Dialect())},
			}, tasks.Config{MaxAttempts: 2, PublishTimeout: time.Minute})
			require.NoError(t, err)
			test(t, w)
		})
	}
}

// runner starts a process that knows workflows; it ends with the test, or with stop.
func (w *world) runner(all ...workflow.Workflow) (stop func()) {
	known, err := workflow.New(all...)
	require.NoError(w.t, err)
	cfg := taskrun.NewDefaultConfig()
	cfg.Process, cfg.Policy.BaseBackoff, cfg.Policy.MaxBackoff = "w-"+strings.ToLower(tasks.NewID()[24:]), time.Millisecond, time.Millisecond
	r := taskrun.New(cfg, taskrun.Deps{
		Store: w.store, Queue: w.queue.Join(cfg.Process), Log: slog.New(slog.DiscardHandler),
		Handlers: map[string]taskrun.Handler{workflow.Type: workflow.Handler{Records: workflow.NewRecords(w.store.Dialect()), Workflows: known}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	done := false
	stop = func() {
		if !done {
			done = true
			cancel()
			require.NoError(w.t, <-ended)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// submit asks for a workflow with a payload and a key.
func (w *world) submit(id, payload, key string) tasks.Submitted {
	w.t.Helper()
	text, err := json.Marshal(workflow.Request{Payload: json.RawMessage(payload)})
	require.NoError(w.t, err)
	got, errs := w.door.Submit(w.t.Context(), anna, tasks.Request{Type: workflow.Type, WorkflowID: id, Payload: text, ChatID: "7", IdempotencyKey: key, Hash: strings.Repeat("0", 64)})
	require.NoError(w.t, errs[0])
	return got[0]
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

// run is a row of workflow_runs: workflow, key, status, result; nil: there is none.
func (w *world) run(id string) []string {
	w.t.Helper()
	var all []string
	rows, err := w.store.DB().QueryContext(w.t.Context(),
		"SELECT workflow_id, COALESCE(idempotency_key, '-'), status, COALESCE(result, '-') FROM workflow_runs WHERE task_id = '"+id+"'")
	require.NoError(w.t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var a, b, c, d string
		require.NoError(w.t, rows.Scan(&a, &b, &c, &d))
		all = append(all, a, b, c, d)
	}
	require.NoError(w.t, rows.Err())
	return all
}

// audit checks the whole installation with its log.
func (w *world) audit() {
	w.t.Helper()
	found, err := fsck.Check(w.t.Context(), fsck.Evidence{DB: w.store}, fsck.Options{History: true})
	require.NoError(w.t, err)
	require.Zero(w.t, found.Report.Violations(), "%v", found.Report)
}

// echo returns its payload.
var echo = workflow.Workflow{
	ID: "echo", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"list":{"items":{"type":"object","properties":{"a/b":{"type":"string"}}}}}}`),
	Run: func(_ context.Context, r workflow.Run) (json.RawMessage, error) { return r.Payload, nil },
}

func TestAWorkflowRunsOnceForAKey(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		first := w.submit("echo", `{"n":1}`, "key")
		require.Nil(t, w.run(first.Task.ID), "it has not ended")
		w.runner(echo)
		row := w.until(first.Task.ID, taskstate.StatusSucceeded)
		require.JSONEq(t, `{"n":1}`, string(row.Result))
		again := w.submit("echo", `{"n":1}`, "key")
		require.True(t, again.Replayed)
		require.Equal(t, first.Task.ID, again.Task.ID)
		require.JSONEq(t, `{"n":1}`, string(again.Task.Result))
		run := w.run(first.Task.ID)
		require.Equal(t, []string{"echo", "key", "SUCCEEDED"}, run[:3])
		require.JSONEq(t, `{"n":1}`, run[3])
		w.audit()
	})
}

// A workflow that no worker knows waits for a person, with the reason and without an attempt; a worker of a later version runs it.
func TestAnUnknownWorkflowWaitsForAPerson(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		stop := w.runner()
		id := w.submit("echo", `{}`, "").Task.ID
		row := w.until(id, taskstate.StatusSuspended)
		require.Equal(t, []any{workflow.CodeUnknown, 0, 0}, []any{row.ErrorCode, row.AttemptCount, row.CrashCount})
		require.Contains(t, row.LastError, `unknown workflow "echo"`)
		require.Nil(t, w.run(id))
		stop()
		w.runner(echo)
		_, err := w.door.Resume(t.Context(), operator, id, "it is there now")
		require.NoError(t, err)
		row = w.until(id, taskstate.StatusSucceeded)
		require.Empty(t, row.ErrorCode)
		require.Equal(t, "SUCCEEDED", w.run(id)[2])
		w.audit()
	})
}

// The row of a run goes when its task is put back, and comes again with its next end.
func TestARunsRowFollowsItsTask(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		stop := w.runner(echo)
		id := w.submit("echo", `{"n":"one"}`, "").Task.ID
		row := w.until(id, taskstate.StatusDead)
		require.Equal(t, workflow.CodePayload, row.ErrorCode)
		require.Contains(t, row.ErrorMessage, "payload/n: ")
		require.Equal(t, []string{"echo", "-", "DEAD", "-"}, w.run(id))
		stop()
		_, err := w.door.Retry(t.Context(), anna, id)
		require.NoError(t, err)
		require.Nil(t, w.run(id), "it has not ended any more")
		_, err = w.door.Cancel(t.Context(), anna, id)
		require.NoError(t, err)
		require.Equal(t, "CANCELLED", w.run(id)[2])
		w.audit()
	})
}

// A release that does not know this table puts a task back: its next end writes the row all the same.
func TestARowThatIsThereIsWrittenAnew(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		id := w.submit("echo", `{}`, "k").Task.ID
		require.NoError(t, w.store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO workflow_runs (task_id, workflow_id, status, created_at, updated_at) VALUES (?, 'echo', 'DEAD', ?, ?)", id, m.Now, m.Now)
			return err
		}))
		w.runner(echo)
		w.until(id, taskstate.StatusSucceeded)
		require.Equal(t, "SUCCEEDED", w.run(id)[2])
	})
}

// Whatever a workflow does, its task ends with the reason, and the worker lives on.
func TestWorkflowsThatMisbehave(t *testing.T) {
	bad := map[string]struct {
		run    func(context.Context, workflow.Run) (json.RawMessage, error)
		status taskstate.Status
		code   string
		tries  int
	}{
		"panics": {func(context.Context, workflow.Run) (json.RawMessage, error) { panic("no") }, taskstate.StatusDead, taskrun.CodeInternal, 2},
		"fails":  {func(context.Context, workflow.Run) (json.RawMessage, error) { return nil, errors.New("no") }, taskstate.StatusDead, workflow.CodeFailed, 2},
		"refuses": {func(context.Context, workflow.Run) (json.RawMessage, error) {
			return nil, workflow.Permanent("MINE", "Not so.", "the reason")
		}, taskstate.StatusDead, "MINE", 1},
		"no-json": {func(context.Context, workflow.Run) (json.RawMessage, error) { return json.RawMessage("{"), nil }, taskstate.StatusDead, workflow.CodeResult, 1},
		"too-much": {func(context.Context, workflow.Run) (json.RawMessage, error) {
			return json.RawMessage(`"` + strings.Repeat("x", workflow.MaxResult) + `"`), nil
		}, taskstate.StatusDead, workflow.CodeResult, 1},
		"nothing": {func(context.Context, workflow.Run) (json.RawMessage, error) { return nil, nil }, taskstate.StatusSucceeded, "", 0},
	}
	onEach(t, func(t *testing.T, w *world) {
		ids := map[string]string{}
		var all []workflow.Workflow
		for name, b := range bad {
			ids[name] = w.submit(name, "{}", "").Task.ID
			all = append(all, workflow.Workflow{ID: name, Run: b.run})
		}
		w.runner(all...)
		for name, b := range bad {
			row := w.until(ids[name], b.status)
			require.Equal(t, []any{b.code, b.tries}, []any{row.ErrorCode, row.AttemptCount}, name)
			require.Equal(t, string(b.status), w.run(ids[name])[2], name)
		}
		w.audit()
	})
}

// A task whose payload is none of a request was made by something else; it ends with the reason.
func TestAForeignPayload(t *testing.T) {
	t.Parallel()
	known, err := workflow.New(echo)
	require.NoError(t, err)
	h := workflow.Handler{Workflows: known}
	for _, text := range []string{"", "[]", `"x"`, `{"payload":[]}`, `{"userText":1}`} {
		res := h.Handle(t.Context(), taskrun.Job{Task: taskstate.Task{WorkflowID: "echo", Payload: json.RawMessage(text)}, Report: func(taskstate.Progress) {}})
		f := h.Classify(res.Err)
		require.True(t, f.Permanent, text)
		require.Equal(t, workflow.CodePayload, f.Code, text)
	}
}

func TestPayloadsAreComparedWithTheSchema(t *testing.T) {
	t.Parallel()
	known, err := workflow.New(echo, workflow.Workflow{
		ID: "text", Text: "text", Schema: json.RawMessage(`{"required":["text"],"additionalProperties":false,"properties":{"text":{"type":"string","minLength":1}}}`),
	}, workflow.Workflow{ID: "any"})
	require.NoError(t, err)
	require.Equal(t, []string{"any", "echo", "text"}, known.IDs())
	require.ErrorIs(t, known.Check("none", workflow.Request{}), workflow.ErrUnknown)
	for _, c := range []struct{ id, payload, text, path, words string }{
		{"any", "", "", "", ""},
		{"any", "null", "", "", ""},
		{"any", "[]", "", "", "is not an object"},
		{"any", "{", "", "", "unexpected"},
		{"echo", `{"n":1.5}`, "", "/n", "integer"},
		{"echo", `{"list":[{},{"a/b":1}]}`, "", "/list/1/a~1b", "string"},
		{"text", "", "", "", "text"},
		{"text", "", "some", "", ""},
		{"text", `{"text":"mine"}`, "other", "", ""},
		{"text", `{"text":""}`, "other", "/text", "minLength"},
		{"text", `{"texts":"x"}`, "some", "", "texts"},
	} {
		err := known.Check(c.id, workflow.Request{UserText: c.text, Payload: json.RawMessage(c.payload)})
		if c.words == "" {
			require.NoError(t, err, "%+v", c)
			continue
		}
		var wrong *workflow.PayloadError
		require.ErrorAs(t, err, &wrong, "%+v", c)
		require.Equal(t, c.path, wrong.Path, "%+v", c)
		require.Contains(t, wrong.Problem, c.words, "%+v", c)
		require.Less(t, len(wrong.Problem), 400)
	}
}

func TestARegistryRefusesWhatCannotRun(t *testing.T) {
	t.Parallel()
	for words, all := range map[string][]workflow.Workflow{
		"more than once":      {{ID: "a"}, {ID: "a"}},
		"1 to 190 printable":  {{ID: "a b"}},
		`workflow id ""`:      {{}},
		"workflow a: schema:": {{ID: "a", Schema: json.RawMessage(`{"type":"strange"}`)}},
		"file":                {{ID: "a", Schema: json.RawMessage(`{"$ref":"file:///etc/passwd"}`)}},
		"http":                {{ID: "a", Schema: json.RawMessage(`{"$ref":"http://127.0.0.1:1/x"}`)}},
	} {
		_, err := workflow.New(all...)
		require.ErrorContains(t, err, words)
	}
}
