// Package ingesttest is the world of the ingestion's tests: the real application over SQLite with fakes of its ports.
package ingesttest

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

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/labserver"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

// Main is the TestMain of a package that uses this one: no goroutine may be left.
func Main(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }

// World is an application on a database of its own.
type World struct {
	T       testing.TB
	Clock   *Clock
	Store   *taskstore.Store
	App     *app.App
	Deps    ingest.Deps
	Config  ingest.Config
	Handler *pipeline.Worker
	Embed   *Embedder
	Earlier []ingest.Embedder // of bases that were made before ChangeModel
	Vectors *Vectors
	Files   *files.Folder
	Dir     string
	Caller  ingest.Caller
	Policy  taskstate.Policy
	owner   int
	Server  bool // the database's clock is a server's
}

// Options change what newWorld makes.
type Options struct {
	Database string // a URL or a MySQL DSN; empty: SQLite in a temporary folder, with a clock of the test's
	Config   func(*ingest.Config)
	Deps     func(*ingest.Deps)
	Outbox   taskstate.OutboxFunc // Kafka transport
}

func testPolicy() taskstate.Policy {
	return taskstate.Policy{Lease: 30 * time.Second, MaxCrashes: 1000, Slack: 2 * time.Second, DLQ: true}
}

func NewWorld(t testing.TB, o Options) *World {
	t.Helper()
	w := &World{T: t, Clock: newClock(), Embed: newEmbedder(), Vectors: newVectors(), Policy: testPolicy(), Dir: t.TempDir()}
	w.Caller = ingest.Caller{Scope: taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, Channel: "http"}
	cfg := taskstore.Config{DatabaseURL: o.Database, Outbox: o.Outbox}
	switch {
	case o.Database == "":
		cfg.DatabaseURL = taskstoretest.SQLite(t)
		cfg.Now = w.Clock.Now
	case !strings.Contains(o.Database, "://"):
		cfg = taskstore.Config{MySQLDSN: o.Database, Outbox: o.Outbox}
	}
	w.Server = o.Database != ""
	var err error
	w.Store, err = taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Store.Close() })
	_, err = w.Store.Migrate(t.Context())
	require.NoError(t, err)
	w.Files, err = files.Open(w.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Files.Close() })
	w.Build(o)
	return w
}

// Build makes the application anew on the same database, as after a restart.
func (w *World) Build(o Options) {
	cfg := ingest.NewDefaultConfig()
	cfg.MaxAttempts = 3
	if o.Config != nil {
		o.Config(&cfg)
	}
	deps := ingest.Deps{
		Store: w.Store, Extractor: LineExtractor{}, Splitter: BlockSplitter{}, Embedder: w.Embed, Earlier: w.Earlier, Vectors: w.Vectors,
		Detect: func([]byte, io.ReaderAt, int64, string) (string, error) { return "text/plain", nil }, Adopts: true,
		Policy: w.Policy, Log: slog.New(slog.DiscardHandler), Clock: w.Clock.Now,
	}
	if w.Server {
		deps.Clock = time.Now
	}
	if o.Deps != nil {
		o.Deps(&deps)
	}
	var err error
	w.Deps, w.Config = deps, cfg
	w.App, err = app.New(deps, w.Files, cfg)
	require.NoError(w.T, err)
	w.Handler, err = w.App.Worker()
	require.NoError(w.T, err)
}

// ChangeModel has the world embed with another model from now on, as an operator sets it; bases that are there keep the one before.
func (w *World) ChangeModel(m ingest.Model) {
	w.Earlier = append(w.Earlier, w.Embed)
	w.Embed = newEmbedder()
	w.Embed.Model_ = m
	w.Build(Options{})
}

// Receive puts text on disk.
func (w *World) Receive(name, text string) ingest.ReceivedFile {
	w.T.Helper()
	f, err := w.App.Receive(w.T.Context(), strings.NewReader(text), name)
	require.NoError(w.T, err)
	return f
}

// Upload accepts text as a new document.
func (w *World) Upload(text string) ingest.Accepted {
	w.T.Helper()
	return w.Accept(ingest.Upload{File: w.Receive("a.txt", text)})
}

// Accept accepts and fails the test when it cannot be.
func (w *World) Accept(u ingest.Upload) ingest.Accepted {
	w.T.Helper()
	got, err := w.App.Accept(w.T.Context(), w.Caller, u)
	require.NoError(w.T, err)
	return got
}

// Claim takes the task, from whoever holds it if its lease is over.
func (w *World) Claim(id string) (taskrun.Job, taskstate.Answer) {
	w.T.Helper()
	w.owner++
	owner := fmt.Sprintf("p%d", w.owner)
	r := taskstate.ClaimRequest{Owner: owner + "/1", Process: owner, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: owner}, Takeover: true, Alone: true}
	out, err := w.Store.Apply(w.T.Context(), taskstate.Batch{
		IDs: []string{id}, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Claim(w.Policy, m, t, r)
		}),
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, d []taskstate.Decision) error {
			return w.Handler.OnTransition(ctx, tx, m, d, nil)
		},
	})
	require.NoError(w.T, err)
	m, err := w.Store.Moment(w.T.Context())
	require.NoError(w.T, err)
	return taskrun.Job{
		Task: out[0].After, Token: taskstate.Token{Epoch: m.Epoch, Fence: out[0].After.Fence},
		Report: func(taskstate.Progress) {},
	}, out[0].Answer
}

// Finish ends a job as the runner does, and returns the outcome.
func (w *World) Finish(ctx context.Context, job taskrun.Job, res taskrun.Result) (taskstate.Outcome, error) {
	holder := taskstate.Holder{Token: job.Token, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "p"}}
	out, err := w.Store.Apply(ctx, taskstate.Batch{
		IDs: []string{job.Task.ID}, Scope: taskstate.System(),
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			t := tasks[0]
			if res.Err != nil {
				return []taskstate.Decision{taskstate.Fail(w.Policy, m, t, holder, w.Handler.Classify(res.Err))}, nil //nolint:nilerr // the run's error is the outcome
			}
			if d := taskstate.Succeed(m, t, holder, nil, ""); d.Answer == taskstate.AnswerLost {
				return []taskstate.Decision{d}, nil
			}
			return w.Handler.Decide(ctx, tx, m, []taskrun.Done{{Task: t, Holder: holder, Result: res}})
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, d []taskstate.Decision) error {
			return w.Handler.OnTransition(ctx, tx, m, d, map[string]any{job.Task.ID: res.Payload})
		},
	})
	if err != nil {
		return taskstate.Outcome{}, err
	}
	return out[0], out[0].Err
}

// Process claims, runs and finishes a task once.
func (w *World) Process(id string) taskstate.Task {
	w.T.Helper()
	job, answer := w.Claim(id)
	require.Equal(w.T, taskstate.AnswerClaimed, answer)
	out, err := w.Finish(w.T.Context(), job, w.Handler.Handle(w.T.Context(), job))
	require.NoError(w.T, err)
	return out.After
}

// Task reads a task.
func (w *World) Task(id string) taskstate.Task {
	w.T.Helper()
	task, err := w.Store.Get(w.T.Context(), taskstate.System(), id)
	require.NoError(w.T, err)
	return task
}

// Document reads a document's row, also a tombstone's.
func (w *World) Document(id string) catalog.DocumentRow {
	w.T.Helper()
	var d catalog.DocumentRow
	require.NoError(w.T, w.Store.InTx(w.T.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		var err error
		d, err = w.App.Catalog.LockDocument(ctx, tx, id)
		return err
	}))
	return d
}

// Text is what the visible version says, line by line, through the vectors: each line's vector must be the text's own.
func (w *World) Text(document string) []string {
	w.T.Helper()
	rows, err := w.Store.Reader().QueryContext(w.T.Context(), `SELECT s.segment_index, s.content, s.vector_id, d.base_id, d.segment_count
		FROM knowledge_document d JOIN knowledge_segment s ON s.version_id = d.visible_version_id WHERE d.id = ? ORDER BY s.segment_index`, document)
	require.NoError(w.T, err)
	defer func() { _ = rows.Close() }()
	var out []string
	count := 0
	for rows.Next() {
		var index int
		var content, vector, base string
		require.NoError(w.T, rows.Scan(&index, &content, &vector, &base, &count))
		require.Equal(w.T, len(out), index, "segments without gaps")
		require.Equal(w.T, VectorOfText(content, w.Embed.Model_.Dim), w.Vectors.values(base, vector), "vector of %q", content)
		out = append(out, content)
	}
	require.NoError(w.T, rows.Err())
	require.Len(w.T, out, count)
	return out
}

// Number returns a query's only number.
func (w *World) Number(query string, params ...any) int {
	w.T.Helper()
	var n int
	require.NoError(w.T, w.Store.Reader().QueryRowContext(w.T.Context(), query, params...).Scan(&n))
	return n
}

// Advance lets time pass; on a server all that waits becomes due instead.
func (w *World) Advance(d time.Duration) {
	w.T.Helper()
	w.Clock.Advance(d)
	if !w.Server {
		return
	}
	past := time.Now().UTC().Add(-d)
	require.NoError(w.T, w.Store.InTx(w.T.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		for _, table := range []string{"knowledge_base", "knowledge_document", "document_version", "vector_garbage", "retired_collection"} {
			if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET sweep_at = ? WHERE sweep_at < ?", past, catalog.Never()); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE ingest_worker SET lease_until = ?", past)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE ingest_task_call SET wake_at = ? WHERE to_status = 'RUNNING' AND wake_at < ?", past, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		return err
	}))
}

// SweepAll sweeps until everything that time brings has been swept.
func (w *World) SweepAll() {
	w.T.Helper()
	for range 8 {
		_, err := w.App.Sweep(w.T.Context())
		require.NoError(w.T, err)
		w.Advance(11 * time.Minute)
	}
}

// OnEachDatabase runs a test on SQLite, MariaDB and Postgres.
func OnEachDatabase(t *testing.T, test func(t *testing.T, w *World)) {
	t.Helper()
	databases := map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "" }, "mariadb": labserver.MySQLDatabase, "postgres": labserver.PostgresDatabase,
	}
	for name, open := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, NewWorld(t, Options{Database: open(t)}))
		})
	}
}

// VectorCount is how many vectors all bases hold.
func (w *World) VectorCount() int {
	w.Vectors.mu.Lock()
	defer w.Vectors.mu.Unlock()
	n := 0
	for _, rows := range w.Vectors.Rows {
		n += len(rows)
	}
	return n
}

// Stored lists the upload folder without its marker.
func (w *World) Stored() []string {
	w.T.Helper()
	entries, err := os.ReadDir(w.Dir)
	require.NoError(w.T, err)
	var out []string
	for _, e := range entries {
		if e.Name() != files.MarkerName {
			out = append(out, e.Name())
		}
	}
	return out
}

// Lines is a text of n different lines.
func Lines(n int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d says %d\n", i, r.IntN(1_000_000))
	}
	return b.String()
}

// FinishTogether runs tasks and finishes them in one transaction.
func (w *World) FinishTogether(ids ...string) []taskstate.Status {
	w.T.Helper()
	jobs, results, payloads := map[string]taskrun.Job{}, map[string]taskrun.Result{}, map[string]any{}
	for _, id := range ids {
		job, _ := w.Claim(id)
		res := w.Handler.Handle(w.T.Context(), job)
		require.NoError(w.T, res.Err)
		jobs[id], results[id], payloads[id] = job, res, res.Payload
	}
	out, err := w.Store.Apply(w.T.Context(), taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			var dones []taskrun.Done
			for _, t := range tasks {
				dones = append(dones, taskrun.Done{Task: t, Holder: taskstate.Holder{Token: jobs[t.ID].Token}, Result: results[t.ID]})
			}
			return w.Handler.Decide(ctx, tx, m, dones)
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, d []taskstate.Decision) error {
			return w.Handler.OnTransition(ctx, tx, m, d, payloads)
		},
	})
	require.NoError(w.T, err)
	var statuses []taskstate.Status
	for _, o := range out {
		require.NoError(w.T, o.Err)
		statuses = append(statuses, o.After.Status)
	}
	return statuses
}

// Overwrite damages a stored file.
func (w *World) Overwrite(name, text string) {
	w.T.Helper()
	require.NoError(w.T, os.WriteFile(filepath.Join(w.Dir, name), []byte(text), 0o600))
}
