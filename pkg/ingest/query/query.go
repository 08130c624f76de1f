// Package query reads documents, versions and bases for screens, searches, and counts.
package query

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

//go:embed sql/*.sql
var statements embed.FS

// QueueStats tells the lengths of the queue; redisq's queue does.
type QueueStats interface {
	StreamLength(ctx context.Context) (int64, error)
}

// Reads returns questions: documents, bases, search, watches, explanations. It changes nothing.
type Reads struct {
	store    taskstate.Database
	cat      *catalog.Catalog
	embedder ingest.Embedder
	earlier  []ingest.Embedder
	vectors  ingest.VectorStore
	index    *textindex.Index
	reranker ingest.Reranker
	queue    QueueStats
	log      *slog.Logger
	q        sqldb.Queries
	trouble  *telemetry.Repeated // of searches: one line a base and minute, and one of the reranker

	open       func(file string) (*os.File, error)
	searchTime time.Duration
	textWeight float64
	rerankTop  int
	rest       rest // of the reranker
	now        func() time.Time
	past       pasts
}

// ReadsDeps are what Reads needs; Queue may be nil (no queue in this process), and so may Reranker and Open (no Original).
type ReadsDeps struct {
	Store     taskstate.Database
	Catalog   *catalog.Catalog
	Embedder  ingest.Embedder   // of new bases
	Earlier   []ingest.Embedder // of bases that were made with other models
	Vectors   ingest.VectorStore
	Index     *textindex.Index
	Reranker  ingest.Reranker
	RerankTop int // how many hits it orders anew
	// TextWeight is how much words count in a hybrid search, of 1; 0: what was measured as best.
	TextWeight float64
	Queue      QueueStats
	Open       func(file string) (*os.File, error) // opens a stored file by its id
	Log        *slog.Logger
}

// NewReads makes a Reads.
func NewReads(d ReadsDeps) *Reads {
	return &Reads{
		store: d.Store, cat: d.Catalog, embedder: d.Embedder, earlier: d.Earlier, vectors: d.Vectors, index: d.Index, queue: d.Queue, log: d.Log,
		q: sqldb.MustLoad(statements, "sql", d.Store.Dialect()), trouble: telemetry.NewRepeated(d.Log, time.Minute, time.Now), searchTime: searchTime,
		open: d.Open, reranker: d.Reranker, rerankTop: d.RerankTop, textWeight: cmp.Or(d.TextWeight, textWeight), now: time.Now,
	}
}

// Task reads one task. taskstate.ErrNotFound.
func (r *Reads) Task(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	return r.store.Get(ctx, c.Scope, id)
}

// Tasks reads a page of tasks; Query.KnowledgeBase may be a base's id or name.
func (r *Reads) Tasks(ctx context.Context, c ingest.Caller, q taskstate.Query) (taskstate.Page, error) {
	if q.KnowledgeBase != "" {
		b, err := r.cat.Base(ctx, c, q.KnowledgeBase)
		if err != nil {
			return taskstate.Page{}, err
		}
		q.KnowledgeBase = b.ID
	}
	return r.store.List(ctx, c.Scope, q)
}

const (
	workersSince = time.Hour // since when a worker's lease may have ended
	mostWorkers  = 500
	mostRunning  = 2000 // tasks that are looked at
	runningPage  = 200
	shownRunning = 20 // tasks of a worker
)

// Workers lists processes that have claimed tasks lately, those that run most first.
func (r *Reads) Workers(ctx context.Context, c ingest.Caller) ([]ingest.Worker, error) {
	found, err := r.store.Workers(ctx, workersSince, mostWorkers)
	if err != nil {
		return nil, err
	}
	out := make([]ingest.Worker, len(found))
	place := map[string]int{}
	for i, w := range found {
		out[i].Worker = w
		if _, later := place[w.Name]; !later { // a restarted process has the name of the one before
			place[w.Name] = i
		}
	}
	q := taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusRunning}, Sort: taskstate.SortCreated, Limit: runningPage}
	for looked := 0; ; looked += runningPage {
		page, err := r.store.List(ctx, c.Scope, q)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tasks {
			name, _, _ := strings.Cut(t.LeaseOwner, "/")
			i, known := place[name]
			if !known {
				continue // given up, or of a process whose lease ended long ago
			}
			if out[i].Runs++; len(out[i].Tasks) < shownRunning {
				out[i].Tasks = append(out[i].Tasks, t)
			}
		}
		if len(page.Tasks) < runningPage {
			break
		}
		if looked+runningPage >= mostRunning {
			for i := range out {
				out[i].Cut = true
			}
			break
		}
		last := page.Tasks[len(page.Tasks)-1]
		q.After = &taskstate.Cursor{At: last.CreatedAt, ID: last.ID}
	}
	slices.SortStableFunc(out, func(a, b ingest.Worker) int {
		return cmp.Or(-cmp.Compare(sqldb.Flag(a.Alive), sqldb.Flag(b.Alive)), cmp.Compare(b.Runs, a.Runs))
	})
	return out, nil
}

// FailureGroups reads a page of groups of failures.
func (r *Reads) FailureGroups(ctx context.Context, c ingest.Caller, q taskstate.GroupQuery) ([]taskstate.FailureGroup, error) {
	return r.store.FailureGroups(ctx, c.Scope, q)
}

// Transitions reads a task's log after a transition id.
func (r *Reads) Transitions(ctx context.Context, c ingest.Caller, id string, after int64, limit int) ([]taskstate.Transition, error) {
	return r.store.Transitions(ctx, c.Scope, id, after, limit)
}

// headings reads a heading_path column.
func headings(text string) []string {
	var path []string
	if json.Unmarshal([]byte(text), &path) != nil {
		return nil
	}
	return path
}
