// Package query reads documents, versions and bases for screens, searches, and counts.
package query

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"log/slog"
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

	searchTime time.Duration
	textWeight float64
	rerankTop  int
	rest       rest // of the reranker
	now        func() time.Time
}

// ReadsDeps are what Reads needs; Queue may be nil (no queue in this process), and so may Reranker.
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
	Log        *slog.Logger
}

// NewReads makes a Reads.
func NewReads(d ReadsDeps) *Reads {
	return &Reads{
		store: d.Store, cat: d.Catalog, embedder: d.Embedder, earlier: d.Earlier, vectors: d.Vectors, index: d.Index, queue: d.Queue, log: d.Log,
		q: sqldb.MustLoad(statements, "sql", d.Store.Dialect()), trouble: telemetry.NewRepeated(d.Log, time.Minute, time.Now), searchTime: searchTime,
		reranker: d.Reranker, rerankTop: d.RerankTop, textWeight: cmp.Or(d.TextWeight, textWeight), now: time.Now,
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
