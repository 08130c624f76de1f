// Package pipeline works a document through extract, split, embed and index, and makes its version visible in one step.
package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// ErrNoWorker says that App.Handler was asked of an App without an extractor, splitter, embedder or vector store.
var ErrNoWorker = errors.New("this process has no extractor: it does not process documents")

// The share of the percentage that each stage ends at; a visible document has 100.
const (
	percentExtract = 20
	percentEmbed   = 70
	percentRows    = 75
	percentIndex   = 99
)

// maxRanges bounds the runs of pages that a result names.
const maxRanges = 100

// replanTries bounds how often a run plans again because another version became visible meanwhile.
const replanTries = 5

// errReplan: a vector that the plan re-uses is no longer of the visible version.
var errReplan = errors.New("the visible version changed: plan again")

// Worker is the kind of task "document": it takes a version from its file to the vector store.
//
// What a run leaves behind when it dies after a step, and who mends it:
//
//	spool file      unlinked when it is made: nothing
//	embeddings      paid once; the next run finds them in the cache
//	segment rows    of a BUILDING version, seen by nobody; the next run of the version keeps or drops them
//	their index     written with them; what has no row is found by nobody and goes with a merge
//	vectors         named by those rows; the next run writes them again, the sweeper deletes them when the version is given up
//	before finish   the lease expires, another run repeats what is missing
type Worker struct {
	d      ingest.Deps
	cfg    ingest.Config
	q      sqldb.Queries
	cat    *catalog.Catalog
	mount  *files.Mount
	cache  *embedcache.Cache
	index  *textindex.Index
	works  *batcher.Batcher[*workRead]
	models *batcher.Batcher[*modelWish]
	parts  *batcher.Batcher[*rowTask]
	// What runs share: their turns, the bytes of vectors that they keep, and how many have not come to their rows yet.
	embeds, rows, vectors *gate
	cached                atomic.Int64
	before                *atomic.Int64
}

// New makes a Worker. ErrNoWorker when a part is missing. before counts the runs that have not come to their rows yet.
func New(d ingest.Deps, cfg ingest.Config, cat *catalog.Catalog, mount *files.Mount, cache *embedcache.Cache, index *textindex.Index,
	before *atomic.Int64,
) (*Worker, error) {
	if d.Extractor == nil || d.Splitter == nil || d.Embedder == nil || d.Vectors == nil {
		return nil, ErrNoWorker
	}
	w := &Worker{
		d: d, cfg: cfg, q: cat.Queries(), cat: cat, mount: mount, cache: cache, index: index, before: before,
		embeds: newGate(embedsAtOnce), rows: newGate(rowsAtOnce), vectors: newGate(vectorsAtOnce),
	}
	w.works = batcher.New(batcher.Config{Workers: groupWorkers, MinConcurrent: worksMinConcurrent, Most: worksMost, MaxWait: groupWait}, w.loadTogether)
	w.models = batcher.New(batcher.Config{MaxWait: groupWait, Split: ingest.Splits}, w.agreeTogether)
	w.parts = batcher.New(batcher.Config{
		Workers: rowsWorkers, MinConcurrent: rowsMinConcurrent, Most: rowsMost, MaxWait: groupWait,
		Expect: func(int) bool { return w.before.Load() > 0 }, Gather: rowsGather, Split: ingest.Splits,
	}, w.rowsTogether)
	return w, nil
}

var _ taskrun.Decider = (*Worker)(nil)

// Describe implements taskrun.Handler.
func (w *Worker) Describe() taskrun.Description { return ingest.Describe() }

// finishing is the payload of a run that ended well.
type finishing struct {
	version  string
	segments int
	outcome  taskstate.Reason // DONE, or why the version is not wanted any more: SUPERSEDED, DELETED
	shown    *catalog.Shown   // what Decide found, for OnTransition of the same transaction
}

// output is the result column of a document's task.
type output struct {
	Version   int64    `json:"version"`
	Segments  int      `json:"segments"`
	Pages     int      `json:"pages,omitempty"`
	Unread    string   `json:"unreadPages,omitempty"` // such as "3, 7-9": the document is searchable without them
	Warnings  []string `json:"warnings,omitempty"`    // what the text is without: pages, attachments, sheets
	Chars     int64    `json:"characters"`
	Title     string   `json:"title"`
	MediaType string   `json:"mediaType,omitempty"`
	Model     string   `json:"model"`
	Reused    int      `json:"reusedVectors,omitempty"`
}

// Handle implements taskrun.Handler.
func (w *Worker) Handle(ctx context.Context, job taskrun.Job) taskrun.Result {
	r := &run{w: w, job: job, vectors: newVectorCache(&w.cached)}
	w.before.Add(1)
	err := r.all(ctx)
	var u unwanted
	switch {
	case errors.As(err, &u):
		return taskrun.Result{Payload: &finishing{outcome: taskstate.Reason(u)}}
	case err != nil:
		return taskrun.Result{Err: w.blame(ctx, job, err)}
	}
	return taskrun.Result{
		Payload: &finishing{version: r.work.version, segments: len(r.plan.items), outcome: taskstate.ReasonDone},
		Output:  r.output(),
	}
}

// unwanted ends a run whose version is not wanted any more: SUPERSEDED or DELETED.
type unwanted taskstate.Reason

// Error names the reason.
func (u unwanted) Error() string { return "the version is not wanted: " + string(u) }

// run is one attempt at one version.
type run struct {
	w    *Worker
	job  taskrun.Job
	work work
	// embedder makes the base's vectors.
	embedder ingest.Embedder
	spool    *spool
	found    ingest.Extraction
	plan     plan
	looked   time.Time // when the embedding cache was asked for what is missing
	vectors  *vectorCache
	dim      int
	arrived  bool // at its rows, or at its end before them
}

// all does the work in the order of design D11, and gives back what the run holds.
func (r *run) all(ctx context.Context) error {
	defer r.close()
	if err := r.load(ctx); err != nil {
		return err
	}
	if err := r.staged(ctx, "extract", reading{r}.read); err != nil {
		return err
	}
	if err := crash.Fault("worker.after_split"); err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err := r.build(ctx); !errors.Is(err, errReplan) || try == replanTries {
			return err
		}
	}
}

// build makes what search finds of the version: embeddings are paid for before rows name them, and rows are committed
// before the vector store has their vectors.
func (r *run) build(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"plan", planning{r}.makePlan},
		{"embed", paying{r}.embedMissing},
		{"", paying{r}.agreeOnModel},
		{"rows", r.writeRows},
		{"index", indexing{r}.writeVectors},
	} {
		if err := r.staged(ctx, step.name, step.do); err != nil {
			return err
		}
	}
	r.report(ingest.StageSwitch, percentIndex, len(r.plan.items), len(r.plan.items))
	return nil
}

// The steps of a run that have a part of their own each.
type (
	reading  struct{ *run } // the file into the spool
	planning struct{ *run } // which vector each segment has
	paying   struct{ *run } // for the texts of new vectors
	indexing struct{ *run } // vectors into their store
)

// report tells how far the work is; every call also proves that it moves. processed and total count segments.
func (r *run) report(stage taskstate.Stage, percent, processed, total int) {
	r.job.Report(taskstate.Progress{Stage: stage, Percent: min(percent, percentIndex), Processed: processed, Total: total})
}

// within is the percentage of a stage that goes from one share to another, done of total.
func within(from, to, done, total int) int {
	if total <= 0 {
		return from
	}
	return from + (to-from)*min(max(done, 0), total)/total
}

// output is the result column.
func (r *run) output() json.RawMessage {
	unread, warnings := ingest.PageRanges(r.found.Unread, maxRanges), r.found.Warnings
	if unread != "" {
		warnings = append([]string{"pages that could not be read: " + unread}, warnings...)
	}
	out, err := json.Marshal(output{
		Version: r.work.no, Segments: len(r.plan.items), Pages: r.found.Pages, Unread: unread, Warnings: warnings, Chars: r.found.Chars,
		Title: r.title(), MediaType: r.found.MediaType, Model: r.embedder.Model().Key, Reused: r.plan.reused,
	})
	if err != nil {
		return nil // strings and numbers always are JSON
	}
	return out
}

// title is what the document is called when this version is visible: as the user said, as the document says, or its file's name.
func (r *run) title() string {
	return cmp.Or(r.work.upload.Title, shortTitle(r.found.Title), r.work.upload.FileName)
}

// close gives back what the run holds.
func (r *run) close() {
	r.arrive()
	r.w.parts.Look()
	r.vectors.close()
	if r.spool != nil {
		r.spool.close()
	}
}

// guarded turns a panic of one of a run's goroutines into an error of the run: it costs an attempt, not the process.
func guarded(what string, f func() error) func() error {
	return func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = ingest.Transient(ingest.CodeInternal, "%s: panic: %v", what, p)
			}
		}()
		return f()
	}
}

// Classify implements taskrun.Handler.
func (w *Worker) Classify(err error) taskstate.Failure {
	f := ingest.AsFailure(err)
	cause := w.d.Redact(err.Error())
	return taskstate.Failure{
		Code: string(f.Code), Cause: cause, Message: message(f, cause),
		Permanent: f.Permanent, Suspend: f.Suspend, Throttled: f.Throttled, RetryAfter: f.RetryAfter, Stalled: f.Code == ingest.CodeStalled,
	}
}

// message is errorMessage: the cause, and what the user can do about it.
func message(f *ingest.Failure, cause string) string {
	if f.Remedy == "" {
		return cause
	}
	return fmt.Sprintf("%s. %s", cause, f.Remedy)
}

// What the runs of one process do together: each batcher is one group commit.
const (
	worksMinConcurrent = 8
	worksMost          = 32
	groupWorkers       = 2
	groupWait          = 100 * time.Millisecond
)

const tracerName = "github.com/millweir/millweir/pkg/ingest"

// staged runs a stage in a span below the attempt's. Without a name, and where nobody records the attempt, it only calls f.
func (r *run) staged(ctx context.Context, name string, f func(context.Context) error) error {
	parent := trace.SpanFromContext(ctx)
	if name == "" || !parent.IsRecording() {
		return f(ctx)
	}
	ctx, span := parent.TracerProvider().Tracer(tracerName).Start(ctx, name)
	defer span.End()
	err := f(ctx)
	if r.spool != nil {
		span.SetAttributes(attribute.Int("millweir.segments", len(r.spool.items)))
	}
	if u := unwanted(""); err != nil && !errors.As(err, &u) {
		span.SetStatus(codes.Error, taskstate.Shorten(r.w.d.Redact(err.Error()), taskstate.MaxErrorChars))
	}
	return err
}
