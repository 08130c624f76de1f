// Package sweep removes what nobody needs any more: closed versions, deleted documents, vectors without rows, files.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/submit"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
)

// Sweeper removes what nobody needs any more. It is safe for concurrent use.
type Sweeper struct {
	d       ingest.Deps
	cfg     ingest.Config
	q       sqldb.Queries
	cat     *catalog.Catalog
	mount   *files.Mount
	keys    *submit.Keys
	deliver *tasks.Service
	cache   *embedcache.Cache
	deleter *Deleter
	index   *textindex.Index
}

// New makes a Sweeper; deleter is that of the same process.
func New(d ingest.Deps, cfg ingest.Config, cat *catalog.Catalog, mount *files.Mount, keys *submit.Keys, deliver *tasks.Service, cache *embedcache.Cache, deleter *Deleter,
	index *textindex.Index,
) *Sweeper {
	return &Sweeper{d: d, cfg: cfg, q: cat.Queries(), cat: cat, mount: mount, keys: keys, deliver: deliver, cache: cache, deleter: deleter, index: index}
}

const (
	sweepBatch   = 100  // versions, documents or bases of one look
	garbageMax   = 1000 // vector ids of one look
	deleteMax    = 500  // ids of one request to the vector store
	rowsSwept    = 1000 // segment rows of one transaction
	countsJoined = 1000 // rows of one transaction that say how the numbers of documents changed
	sweepTurns   = 50   // looks of one kind in one sweep: bounds it, the next one goes on
	// failuresKept is how long a group of failures stays after its last one, once no task fails with it any more.
	failuresKept = 30 * 24 * time.Hour
	hourly       = time.Hour   // how often the upload folder is listed
	minutely     = time.Minute // how often expired keys are looked for
	// secondPass is the pause before a vector is deleted once more: longer than a paused holder's late request (design D8).
	secondPass = 10 * time.Minute
	// stillOpen is how long garbage of a version that is still BUILDING waits.
	stillOpen = 5 * time.Minute
	// storeRest is how long ids wait that the vector store failed to delete.
	storeRest = 30 * time.Second
)

// Swept counts what a sweep did.
type Swept struct {
	Cancelled      int // tasks of outdated uploads and of deleted documents
	Versions       int // closed versions whose rows went
	Vectors        int // ids deleted from the store, each pass counted
	Documents      int // deleted documents that are gone altogether
	Files          int // stored files removed
	EmbeddingCache int // embedding cache entries removed
	Parts          int // parts of the text index that were merged
}

// more reports whether anything was done.
func (s Swept) more() bool { return s != Swept{} }

// Sweep looks once for everything that is due: closed versions, deleted documents and bases, garbage vectors, old embedding cache entries.
// Any number of processes may sweep at once: every decision is made in SQL under the document's lock before the vector store or a file is touched.
// One kind's error does not keep the others from being swept.
func (a *Sweeper) Sweep(ctx context.Context) (Swept, error) {
	var s Swept
	steps := []struct {
		name string
		run  func(context.Context, *Swept) error
	}{
		{"bases", documentSweep{a}.sweepBases},
		{"collections", documentSweep{a}.sweepCollections},
		{"documents", documentSweep{a}.sweepDocuments},
		{"versions", versionSweep{a}.sweepVersions},
		{"garbage", garbageSweep{a}.sweepGarbage},
		{"embedding cache", a.sweepCache},
		{"text index", a.sweepIndex},
		{"receipts", receipts{a}.verify},
		{"counts", a.joinCounts},
	}
	var errs []error
	for _, step := range steps {
		if err := step.run(ctx, &s); err != nil {
			errs = append(errs, fmt.Errorf("sweep %s: %w", step.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return s, errors.Join(errs...)
}

// RunSweeper sweeps every SweepInterval, and at once when this process made something due, until ctx ends.
// The upload folder is listed at the start and then every hour.
func (a *Sweeper) RunSweeper(ctx context.Context) error {
	ticker := time.NewTicker(a.cfg.SweepInterval)
	defer ticker.Stop()
	var files, keys time.Time
	for {
		now := a.d.Clock()
		a.sweepLogged(ctx)
		if now.Sub(keys) >= minutely {
			keys = now
			a.cat.Logged(ctx, "keys", a.keys.SweepKeys(ctx))
		}
		if now.Sub(files) >= hourly {
			files = now
			_, err := a.SweepFiles(ctx)
			a.cat.Logged(ctx, "files", err)
			_, err = a.index.Tidy(ctx)
			a.cat.Logged(ctx, "text index", err)
			a.cat.Logged(ctx, "failures", a.d.Store.ForgetFailures(ctx, failuresKept))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.deleter.poke:
		}
	}
}

// sweepLogged sweeps once and logs what happened, if anything.
func (a *Sweeper) sweepLogged(ctx context.Context) {
	s, err := a.Sweep(ctx)
	if s.more() {
		a.d.Log.DebugContext(ctx, "ingest: swept", "cancelled", s.Cancelled, "versions", s.Versions, "vectors", s.Vectors,
			"documents", s.Documents, "files", s.Files, "ledger", s.EmbeddingCache, "text_parts", s.Parts)
	}
	a.cat.Logged(ctx, "sweep", err)
}

// sweepCache removes embeddings that nobody used for a day.
func (a *Sweeper) sweepCache(ctx context.Context, s *Swept) error {
	n, err := a.cache.Sweep(ctx, sweepTurns)
	s.EmbeddingCache += n
	return err
}

// sweepIndex merges the parts that were added to the text index.
func (a *Sweeper) sweepIndex(ctx context.Context, s *Swept) error {
	n, err := a.index.MergeGrown(ctx)
	s.Parts += n
	return err
}

// joinCounts adds up what changed of the numbers of documents.
func (a *Sweeper) joinCounts(ctx context.Context, _ *Swept) error {
	for range sweepTurns {
		if n, err := a.cat.JoinCounts(ctx, countsJoined); err != nil || n < countsJoined {
			return err
		}
	}
	return nil
}

// turns reads what is due, a page at a time, and takes care of it: until there is none, a page is not full, or the sweep has
// had its turns. full is how many make a full page; 0: what was taken care of may be due again at once.
func turns[T any](ctx context.Context, a *Sweeper, full int, due func(now time.Time) ([]T, error), do func([]T) error) error {
	for range sweepTurns {
		now, err := a.cat.Moment(ctx)
		if err != nil {
			return err
		}
		page, err := due(now)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := do(page); err != nil || len(page) < full {
			return err
		}
	}
	return nil
}
