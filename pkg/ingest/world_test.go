package ingest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// world is an application on a database of its own.
type world struct {
	t       testing.TB
	clock   *testClock
	store   *taskstore.Store
	app     *App
	handler *Worker
	embed   *hashEmbedder
	vectors *memoryVectors
	files   *Files
	dir     string
	caller  Caller
	policy  taskstate.Policy
	owner   int
	server  bool // the database's clock is a server's
}

// worldOptions change what newWorld makes.
type worldOptions struct {
	database string // a URL or a MySQL DSN; empty: SQLite in a temporary folder, with a clock of the test's
	config   func(*Config)
	deps     func(*Deps)
	outbox   taskstate.OutboxFunc // Kafka transport
}

func testPolicy() taskstate.Policy {
	return taskstate.Policy{Lease: 30 * time.Second, MaxCrashes: 1000, Slack: 2 * time.Second, DLQ: true}
}

func newWorld(t testing.TB, o worldOptions) *world {
	t.Helper()
	w := &world{t: t, clock: newClock(), embed: newEmbedder(), vectors: newVectors(), policy: testPolicy(), dir: t.TempDir()}
	w.caller = Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, Channel: "http"}
	cfg := taskstore.Config{DatabaseURL: o.database, Outbox: o.outbox}
	switch {
	case o.database == "":
		cfg.DatabaseURL = "sqlite:" + filepath.Join(t.TempDir(), "test.db")
		cfg.Now = w.clock.Now
	case !strings.Contains(o.database, "://"):
		cfg = taskstore.Config{MySQLDSN: o.database, Outbox: o.outbox}
	}
	w.server = o.database != ""
	var err error
	w.store, err = taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.store.Close() })
	_, err = w.store.Migrate(t.Context())
	require.NoError(t, err)
	w.files, err = OpenFiles(w.dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.files.Close() })
	w.build(o)
	return w
}

// build makes the application anew on the same database, as after a restart.
func (w *world) build(o worldOptions) {
	cfg := NewDefaultConfig()
	cfg.MaxAttempts = 3
	if o.config != nil {
		o.config(&cfg)
	}
	deps := Deps{
		Store: w.store, Extractor: lineExtractor{}, Splitter: blockSplitter{}, Embedder: w.embed, Vectors: w.vectors, Files: w.files,
		Detect: func([]byte, io.ReaderAt, int64, string) (string, error) { return "text/plain", nil },
		Policy: w.policy, Log: slog.New(slog.DiscardHandler), Clock: w.clock.Now,
	}
	if w.server {
		deps.Clock = time.Now
	}
	if o.deps != nil {
		o.deps(&deps)
	}
	var err error
	w.app, err = New(deps, cfg)
	require.NoError(w.t, err)
	w.handler, err = w.app.Kind()
	require.NoError(w.t, err)
}

// receive puts text on disk.
func (w *world) receive(name, text string) ReceivedFile {
	w.t.Helper()
	f, err := w.app.Receive(w.t.Context(), strings.NewReader(text), name)
	require.NoError(w.t, err)
	return f
}

// upload accepts text as a new document.
func (w *world) upload(text string) Accepted {
	w.t.Helper()
	return w.accept(Upload{File: w.receive("a.txt", text)})
}

// accept accepts and fails the test when it cannot be.
func (w *world) accept(u Upload) Accepted {
	w.t.Helper()
	got, err := w.app.Accept(w.t.Context(), w.caller, u)
	require.NoError(w.t, err)
	return got
}

// claim takes the task, from whoever holds it if its lease is over.
func (w *world) claim(id string) (taskrun.Job, taskstate.Answer) {
	w.t.Helper()
	w.owner++
	owner := fmt.Sprintf("p%d", w.owner)
	r := taskstate.ClaimRequest{Owner: owner + "/1", Process: owner, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: owner}, Takeover: true, Alone: true}
	out, err := w.store.Apply(w.t.Context(), taskstate.Batch{
		IDs: []string{id}, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Claim(w.policy, m, t, r)
		}),
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, d []taskstate.Decision) error {
			return w.handler.OnTransition(ctx, tx, m, d, nil)
		},
	})
	require.NoError(w.t, err)
	m, err := w.store.Moment(w.t.Context())
	require.NoError(w.t, err)
	return taskrun.Job{
		Task: out[0].After, Token: taskstate.Token{Epoch: m.Epoch, Fence: out[0].After.Fence},
		Report: func(taskstate.Progress) {},
	}, out[0].Answer
}

// finish ends a job as the runner does, and returns the outcome.
func (w *world) finish(ctx context.Context, job taskrun.Job, res taskrun.Result) (taskstate.Outcome, error) {
	holder := taskstate.Holder{Token: job.Token, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "p"}}
	out, err := w.store.Apply(ctx, taskstate.Batch{
		IDs: []string{job.Task.ID}, Scope: taskstate.System(),
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			t := tasks[0]
			if res.Err != nil {
				return []taskstate.Decision{taskstate.Fail(w.policy, m, t, holder, w.handler.Classify(res.Err))}, nil //nolint:nilerr // the run's error is the outcome
			}
			if d := taskstate.Succeed(m, t, holder, nil, ""); d.Answer == taskstate.AnswerLost {
				return []taskstate.Decision{d}, nil
			}
			return w.handler.Decide(ctx, tx, m, []taskrun.Done{{Task: t, Holder: holder, Result: res}})
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, d []taskstate.Decision) error {
			return w.handler.OnTransition(ctx, tx, m, d, map[string]any{job.Task.ID: res.Payload})
		},
	})
	if err != nil {
		return taskstate.Outcome{}, err
	}
	return out[0], out[0].Err
}

// process claims, runs and finishes a task once.
func (w *world) process(id string) taskstate.Task {
	w.t.Helper()
	job, answer := w.claim(id)
	require.Equal(w.t, taskstate.AnswerClaimed, answer)
	out, err := w.finish(w.t.Context(), job, w.handler.Run(w.t.Context(), job))
	require.NoError(w.t, err)
	return out.After
}

// task reads a task.
func (w *world) task(id string) taskstate.Task {
	w.t.Helper()
	task, err := w.store.Get(w.t.Context(), taskstate.System(), id)
	require.NoError(w.t, err)
	return task
}

// document reads a document's row, also a tombstone's.
func (w *world) document(id string) documentRow {
	w.t.Helper()
	var d documentRow
	require.NoError(w.t, w.store.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		var err error
		d, err = w.app.lockDocument(ctx, tx, id)
		return err
	}))
	return d
}

// text is what the visible version says, line by line, through the vectors: each line's vector must be the text's own.
func (w *world) text(document string) []string {
	w.t.Helper()
	rows, err := w.store.Reader().QueryContext(w.t.Context(), `SELECT s.segment_index, s.content, s.vector_id, d.base_id, d.segment_count
		FROM knowledge_document d JOIN knowledge_segment s ON s.version_id = d.visible_version_id WHERE d.id = ? ORDER BY s.segment_index`, document)
	require.NoError(w.t, err)
	defer func() { _ = rows.Close() }()
	var out []string
	count := 0
	for rows.Next() {
		var index int
		var content, vector, base string
		require.NoError(w.t, rows.Scan(&index, &content, &vector, &base, &count))
		require.Equal(w.t, len(out), index, "segments without gaps")
		require.Equal(w.t, vectorOfText(content, w.embed.model.Dim), w.vectors.values(base, vector), "vector of %q", content)
		out = append(out, content)
	}
	require.NoError(w.t, rows.Err())
	require.Len(w.t, out, count)
	return out
}

// number returns a query's only number.
func (w *world) number(query string, params ...any) int {
	w.t.Helper()
	var n int
	require.NoError(w.t, w.store.Reader().QueryRowContext(w.t.Context(), query, params...).Scan(&n))
	return n
}

// advance lets time pass; on a server all that waits becomes due instead.
func (w *world) advance(d time.Duration) {
	w.t.Helper()
	w.clock.advance(d)
	if !w.server {
		return
	}
	past := time.Now().UTC().Add(-d)
	require.NoError(w.t, w.store.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		for _, table := range []string{"knowledge_base", "knowledge_document", "document_version", "vector_garbage"} {
			if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET sweep_at = ? WHERE sweep_at < ?", past, never()); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task SET lease_expires_at = ?, wake_at = ? WHERE status = 'RUNNING'", past, past)
		return err
	}))
}

// sweepAll sweeps until everything that time brings has been swept.
func (w *world) sweepAll() {
	w.t.Helper()
	for range 8 {
		_, err := w.app.Sweep(w.t.Context())
		require.NoError(w.t, err)
		w.advance(11 * time.Minute)
	}
}

// onEachDatabase runs a test on SQLite, MariaDB and Postgres.
func onEachDatabase(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	databases := map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "" }, "mariadb": labserver.MySQLDatabase, "postgres": labserver.PostgresDatabase,
	}
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, worldOptions{database: open(t)}))
		})
	}
}

// vectorCount is how many vectors all bases hold.
func (w *world) vectorCount() int {
	w.vectors.mu.Lock()
	defer w.vectors.mu.Unlock()
	n := 0
	for _, rows := range w.vectors.rows {
		n += len(rows)
	}
	return n
}

// stored lists the upload folder without its marker.
func (w *world) stored() []string {
	w.t.Helper()
	entries, err := os.ReadDir(w.dir)
	require.NoError(w.t, err)
	var out []string
	for _, e := range entries {
		if e.Name() != markerName {
			out = append(out, e.Name())
		}
	}
	return out
}

// lines is a text of n different lines.
func lines(n int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d says %d\n", i, r.IntN(1_000_000))
	}
	return b.String()
}

// finishTogether runs tasks and finishes them in one transaction.
func (w *world) finishTogether(ids ...string) []taskstate.Status {
	w.t.Helper()
	jobs, results, payloads := map[string]taskrun.Job{}, map[string]taskrun.Result{}, map[string]any{}
	for _, id := range ids {
		job, _ := w.claim(id)
		res := w.handler.Run(w.t.Context(), job)
		require.NoError(w.t, res.Err)
		jobs[id], results[id], payloads[id] = job, res, res.Payload
	}
	out, err := w.store.Apply(w.t.Context(), taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			var dones []taskrun.Done
			for _, t := range tasks {
				dones = append(dones, taskrun.Done{Task: t, Holder: taskstate.Holder{Token: jobs[t.ID].Token}, Result: results[t.ID]})
			}
			return w.handler.Decide(ctx, tx, m, dones)
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, d []taskstate.Decision) error {
			return w.handler.OnTransition(ctx, tx, m, d, payloads)
		},
	})
	require.NoError(w.t, err)
	var statuses []taskstate.Status
	for _, o := range out {
		require.NoError(w.t, o.Err)
		statuses = append(statuses, o.After.Status)
	}
	return statuses
}

// overwrite damages a stored file.
func (w *world) overwrite(name, text string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}
