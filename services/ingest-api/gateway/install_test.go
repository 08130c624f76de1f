package gateway

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring/documents"
	wiring "github.com/millweir/millweir/pkg/wiring/gateway"
	"github.com/millweir/millweir/pkg/workflow"
	"github.com/millweir/millweir/services/ingest-api/gateway/deadletters"
)

// installation is the application over a database, a Redis and folders of its own. Only workers are missing: tasks stay as
// people, and move, leave them.
type installation struct {
	shared documents.Shared
	parts  *documents.Parts
	env    *process.Env
	app    ingest.Service
	known  *workflow.Registry
	bulk   *bulk.Operations
	checks *checks.Checks
	dir    string

	deadLetters func() deadletters.Service
}

// install opens one, and closes it after the test.
func install(t testing.TB, in world) *installation {
	t.Helper()
	i := &installation{dir: t.TempDir()}
	i.shared, _ = process.Load[documents.Shared]() // the defaults; what it complains of is set below
	i.shared.Store = in.store(t)
	i.shared.Queue.RedisURL, i.shared.Vectors.Kind = process.NewDSN(in.redis(t)), "embedded"
	i.shared.Embedding = documents.Embedding{}
	i.shared.Uploads.Dir, i.shared.Vectors.Dir = filepath.Join(i.dir, "uploads"), filepath.Join(i.dir, "vectors")
	i.env = &process.Env{
		Name: "test", Version: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(),
	}
	var err error
	i.parts, err = documents.Open(context.Background(), i.env, i.shared)
	require.NoError(t, err)
	t.Cleanup(i.parts.Close)
	_, err = i.parts.Store.Migrate(t.Context())
	require.NoError(t, err)
	app, err := wiring.New(i.parts, i.shared, wiring.Search{}, 1<<20)
	require.NoError(t, err)
	i.app, i.known, i.bulk, i.checks, i.deadLetters = app, app.Workflows, app.Bulk, app.Checks, func() deadletters.Service { return wiring.DeadLetters(i.parts, i.shared, app) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- process.RunAll(ctx, app.Services()...) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return i
}

// exec changes rows past every check.
func (i *installation) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	require.NoError(t, i.parts.Store.InTx(context.Background(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}

// count is how many rows a table has.
func (i *installation) count(t testing.TB, table string) (n int) {
	t.Helper()
	require.NoError(t, i.parts.Store.Reader().QueryRowContext(context.Background(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}

// files are the uploads on disk.
func (i *installation) files(t testing.TB) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(i.shared.Uploads.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			paths = append(paths, path)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	require.NoError(t, err)
	return paths
}

// work plays a worker for a task until it has a status.
func (i *installation) work(t testing.TB, id string, to taskstate.Status) {
	t.Helper()
	policy := taskstate.Policy{Lease: time.Minute, MaxCrashes: 9, Slack: time.Second}
	holder := taskstate.Holder{Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}}
	decide := func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		holder.Token = taskstate.Token{Epoch: m.Epoch, Fence: task.Fence}
		switch to {
		case taskstate.StatusSucceeded:
			return taskstate.Succeed(m, task, holder, nil, "done")
		case taskstate.StatusRetrying, taskstate.StatusDead:
			return taskstate.Fail(policy, m, task, holder, taskstate.Failure{Cause: "no use", Permanent: to == taskstate.StatusDead})
		}
		return taskstate.Claim(policy, m, task, taskstate.ClaimRequest{Owner: "w/1", Process: "w", Actor: holder.Actor, Alone: true})
	}
	out, err := i.parts.Store.Apply(context.Background(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(decide)})
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.NotNil(t, out[0].Change, "%s: %+v", to, out[0])
	require.Equal(t, to, out[0].Change.To)
}

// faulty is the application with what a test does to it: it fails as it is told, and tells who calls and what begins.
type faulty struct {
	ingest.Service
	watching chan string // the task of each Watch that began
	receives chan string // the name of each file whose Receive began

	mu         sync.Mutex
	fail       map[string]error // by method
	lastCall   ingest.Caller    // of a list of tasks, or of the counts
	lastSearch ingest.SearchRequest
	lastQuery  taskstate.Query
	received   int64 // bytes of uploads that were read
	claims     atomic.Int64
}

func newFaulty(app ingest.Service) *faulty {
	return &faulty{Service: app, watching: make(chan string, 10_000), receives: make(chan string, 10_000), fail: map[string]error{}}
}

// Fail makes the method of that name return err; nil takes that back.
func (f *faulty) Fail(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[method] = err
}

func (f *faulty) failing(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail[method]
}

func (f *faulty) Admit(ctx context.Context) error {
	if err := f.failing("Admit"); err != nil {
		return err
	}
	return f.Service.Admit(ctx)
}

// counted counts what is read.
type counted struct {
	r io.Reader
	f *faulty
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.received += int64(n)
	return n, err
}

func (f *faulty) Receive(ctx context.Context, r io.Reader, name string) (ingest.ReceivedFile, error) {
	select {
	case f.receives <- name:
	default: // nobody listens
	}
	if err := f.failing("Receive"); err != nil {
		return ingest.ReceivedFile{}, err
	}
	return f.Service.Receive(ctx, counted{r, f}, name)
}

func (f *faulty) BeginKey(ctx context.Context, c ingest.Caller, key string) (func(), error) {
	if err := f.failing("BeginKey"); err != nil {
		return nil, err
	}
	defer f.claims.Add(1)
	return f.Service.BeginKey(ctx, c, key)
}

func (f *faulty) AcceptAll(ctx context.Context, c ingest.Caller, uploads []ingest.Upload) ([]ingest.Accepted, []error) {
	if err := f.failing("Accept"); err != nil {
		errs := make([]error, len(uploads))
		for i := range errs {
			errs[i] = err
		}
		return make([]ingest.Accepted, len(uploads)), errs
	}
	return f.Service.AcceptAll(ctx, c, uploads)
}

func (f *faulty) Tasks(ctx context.Context, c ingest.Caller, q taskstate.Query) (taskstate.Page, error) {
	f.mu.Lock()
	f.lastCall, f.lastQuery = c, q
	f.mu.Unlock()
	return f.Service.Tasks(ctx, c, q)
}

func (f *faulty) Stats(ctx context.Context, c ingest.Caller) (ingest.Stats, error) {
	f.mu.Lock()
	f.lastCall = c
	f.mu.Unlock()
	return f.Service.Stats(ctx, c)
}

func (f *faulty) Watch(ctx context.Context, c ingest.Caller, id string, after int64) (<-chan ingest.TaskEvent, error) {
	events, err := f.Service.Watch(ctx, c, id, after)
	if err == nil {
		f.watching <- id
	}
	return events, err
}

// Segments are five of each document that the caller sees: no worker has made any.
func (f *faulty) Segments(ctx context.Context, c ingest.Caller, id string, after, limit int) (out []ingest.Segment, err error) {
	if _, err := f.Document(ctx, c, id); err != nil {
		return nil, err
	}
	for i := after + 1; i < 5 && len(out) < limit; i++ {
		out = append(out, ingest.Segment{Index: i, Text: "text", Page: i, HeadingPath: []string{"A"}, ByteEnd: 4, Tokens: 1})
	}
	return out, nil
}

// Search finds the caller's documents by their title.
func (f *faulty) Search(ctx context.Context, c ingest.Caller, r ingest.SearchRequest) (out ingest.SearchResult, err error) {
	if err := f.failing("Search"); err != nil {
		return out, err
	}
	f.mu.Lock()
	f.lastSearch = r
	f.mu.Unlock()
	out.Partial, out.Mode = true, ingest.SearchText
	found, err := f.Documents(ctx, c, ingest.ListQuery{Text: r.Query, Limit: r.TopK})
	for _, d := range found {
		out.Hits = append(out.Hits, ingest.SearchHit{
			DocumentID: d.ID, Title: d.Title, FileName: d.FileName, Version: 1, SegmentIndex: 2, Page: 3, PageTo: 4, HeadingPath: []string{"A", "B"}, Text: "It is found.", Score: 0.5,
			Highlights: [][2]int{{6, 11}}, Sentence: ingest.Sentence{Text: "It is found.", Page: 3, Highlights: [][2]int{{6, 11}}},
		})
	}
	if n := len(out.Hits); n > 0 && r.After == nil {
		out.Next = &ingest.SearchPlace{Rank: n, Document: out.Hits[n-1].DocumentID, Segment: 2}
		if r.TopK == 50 {
			out.Next.Rank = ingest.MaxHits
		}
	}
	if r.PerDocument > 0 {
		out.Groups, out.Hits = [][]ingest.SearchHit{out.Hits}, nil
	}
	return out, err
}

// LastSearch is what the last search was asked.
func (f *faulty) LastSearch() ingest.SearchRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastSearch
}

// LastQuery is what the last list of tasks was asked.
func (f *faulty) LastQuery() taskstate.Query {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastQuery
}

// LastCaller is who asked for it.
func (f *faulty) LastCaller() ingest.Caller {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastCall
}

// Received is how many bytes of uploads were read.
func (f *faulty) Received() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received
}

// program is a file that no reader knows.
const program = "MZ\x90\x00\x03\x00\x00\x00"

// beat writes a running task's progress as its worker would.
func (b *bench) beat(id string, p taskstate.Progress) {
	b.t.Helper()
	b.exec(b.t, "UPDATE ingest_task_state SET stage = ?, progress = ?, processed_segments = ?, total_segments = ?, updated_at = ? WHERE id = ?",
		p.Stage, p.Percent, p.Processed, p.Total, time.Now().UTC(), id)
}
