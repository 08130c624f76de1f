package pipeline

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	moveBatch    = 512 // segments that are embedded and written together
	movePage     = 200 // versions listed at once
	closedFor    = 30 * time.Second
	closingTries = 5 // times that a base is closed in one attempt
)

// errOpen says that a base has not stayed closed.
var errOpen = errors.New("the knowledge base was closed for too long")

// moving is a move of a base to this process's model: its vectors are made anew in a shadow, a collection beside its own, from the
// texts of its segments. Searches and uploads go on in its own collection meanwhile. In the end the base is closed for a moment: no
// version becomes visible until the last ones are in the shadow as well, which then becomes the base's collection (design D26).
// All that a move has done stands in rows; an attempt that follows a crash goes on with the versions that are left.
type moving struct {
	w      *Worker
	base   ingest.Base
	shadow string
	report func(done, total int)
	done   int
	total  int
	dim    int

	pieces []piece
	ended  []string // versions whose last segment is among the pieces, or before them
}

// piece is a segment of a visible version.
type piece struct {
	index             int
	version, document string
	text              string
	hash              embedcache.TextHash
	vector, birth     string
}

// Moves reports whether Move would make a base's vectors anew: another model than this process's has made them.
func (w *Worker) Moves(base ingest.Model) bool {
	return base.Key != "" && !base.Same(w.d.Embedder.Model())
}

// MoveCosts counts the visible documents of a base, and the tokens of their segments.
func (w *Worker) MoveCosts(ctx context.Context, base string) (documents, tokens int64, err error) {
	if documents, err = w.cat.CountUnmoved(ctx, base, ""); err != nil {
		return 0, 0, err
	}
	tokens, err = w.cat.TokensUnmoved(ctx, base, "")
	return documents, tokens, err
}

// Move makes the vectors of a base anew with this process's model, and then has searches use them. report gets the documents that
// are done, and all.
// Errors: those of the Embedder and the VectorStore, *ingest.Failure; CodeDimension, suspended, when it is given up for a move to another
// model; ingest.ErrBaseNotFound.
func (w *Worker) Move(ctx context.Context, base ingest.Base, report func(done, total int)) (moved int64, err error) {
	m := &moving{w: w, base: base, report: report}
	if m.shadow, err = w.cat.Shadow(ctx, base.ID, w.d.Embedder.Model().Key); err != nil {
		return 0, err
	}
	total, err := w.cat.CountUnmoved(ctx, base.ID, m.shadow)
	if err != nil {
		return 0, err
	}
	m.total = int(total)
	if err := m.pass(ctx, func() error { return nil }); err != nil {
		return int64(m.done), err
	}
	for range closingTries {
		if err = m.finish(ctx); !errors.Is(err, errOpen) {
			return int64(m.done), err
		}
	}
	return int64(m.done), ingest.Transient(ingest.CodeThrottled, "move the knowledge base: %w", err)
}

// finish closes the base, waits for what is just becoming visible, moves it too, and switches. errOpen when that took too long.
func (m *moving) finish(ctx context.Context) error {
	closed, err := m.w.cat.Close(ctx, m.base.ID, m.shadow, closedFor)
	if err != nil {
		return err
	}
	if !closed {
		return ingest.Suspended(ingest.CodeDimension, "An operator gives all workers the same EMBEDDING_MODEL, and resumes the task or reindexes the base again.",
			"move the knowledge base: meanwhile it is moved to another model than %s", m.w.d.Embedder.Model().Key)
	}
	stays := func() error {
		closed, err := m.w.cat.StaysClosed(ctx, m.base.ID, m.shadow, closedFor)
		if err == nil && !closed {
			err = errOpen
		}
		return err
	}
	if err := m.w.cat.WaitForDocuments(ctx, m.base.ID, stays); err != nil {
		return err
	}
	if err := m.pass(ctx, stays); err != nil {
		return err
	}
	moved, err := m.w.cat.Moved(ctx, m.base.ID, m.shadow)
	if err != nil {
		return err
	}
	if !moved {
		return errOpen
	}
	return nil
}

// pass moves each version that is not in the shadow. stays is called after every batch.
func (m *moving) pass(ctx context.Context, stays func() error) error {
	for after, more := "", true; more; {
		page, err := m.w.cat.Unmoved(ctx, m.base.ID, m.shadow, after, movePage)
		if err != nil {
			return err
		}
		for _, v := range page {
			if err := m.version(ctx, v, stays); err != nil {
				return err
			}
			after = v.Document
		}
		more = len(page) == movePage
	}
	return m.flush(ctx, stays)
}

// version reads the segments of a version, and writes them whenever they are enough.
func (m *moving) version(ctx context.Context, v catalog.UnmovedVersion, stays func() error) error {
	for after, more := -1, true; more; {
		args := []any{v.Version, after, planPage}
		page, err := sqldb.ReadAll(ctx, m.w.d.Store, "read segments to be moved", m.w.q.Get("MovingSegments"), args, func(rows *sql.Rows) (p piece, err error) {
			err = rows.Scan(&p.index, &p.text, &p.hash, &p.vector, &p.birth)
			p.vector, p.birth = strings.TrimSpace(p.vector), strings.TrimSpace(p.birth)
			return p, err
		})
		if err != nil {
			return err
		}
		for _, p := range page {
			p.version, p.document = v.Version, v.Document
			m.pieces, after = append(m.pieces, p), p.index
		}
		if more = len(page) == planPage; more && len(m.pieces) >= moveBatch {
			if err := m.flush(ctx, stays); err != nil {
				return err
			}
		}
	}
	if m.ended = append(m.ended, v.Version); len(m.pieces) < moveBatch && len(m.ended) < movePage {
		return nil
	}
	return m.flush(ctx, stays)
}

// flush writes the vectors of the pieces to the shadow, and notes versions that are complete there.
func (m *moving) flush(ctx context.Context, stays func() error) error {
	if len(m.ended) == 0 && len(m.pieces) == 0 {
		return nil
	}
	values, err := m.values(ctx)
	if err != nil {
		return err
	}
	if err := m.write(ctx, values); err != nil {
		return err
	}
	if err := m.w.cat.NoteMoved(ctx, m.shadow, m.ended); err != nil {
		return err
	}
	m.done += len(m.ended)
	m.total = max(m.total, m.done)
	m.pieces, m.ended = m.pieces[:0], m.ended[:0]
	m.report(m.done, m.total)
	return stays()
}

// write writes the pieces of versions that are still visible. The sweeper deletes the vectors of others twice, the second time ten
// minutes after the first (design D8): what is written right after this look is gone by then.
func (m *moving) write(ctx context.Context, values map[embedcache.TextHash][]float32) error {
	var versions []string
	for _, p := range m.pieces {
		if n := len(versions); n == 0 || versions[n-1] != p.version {
			versions = append(versions, p.version)
		}
	}
	if len(versions) == 0 {
		return nil
	}
	moving, err := m.w.cat.StillMoving(ctx, m.shadow, versions)
	if err != nil {
		return err
	}
	rows := make([]ingest.Vector, 0, len(m.pieces))
	for _, p := range m.pieces {
		if moving[p.version] {
			rows = append(rows, ingest.Vector{ID: p.vector, DocumentID: p.document, Birth: p.birth, Values: values[p.hash]})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if m.dim == 0 {
		m.dim = len(rows[0].Values)
		if err := m.w.cat.ShadowHas(ctx, m.base.ID, m.shadow, m.dim); err != nil {
			return err
		}
	}
	return m.w.d.Vectors.Upsert(ctx, m.shadow, rows)
}

// values are the vectors of the pieces' texts, out of the embedding cache or paid for.
func (m *moving) values(ctx context.Context) (map[embedcache.TextHash][]float32, error) {
	model := m.w.d.Embedder.Model().Key
	texts := map[embedcache.TextHash]string{}
	var hashes []embedcache.TextHash
	for _, p := range m.pieces {
		if _, twice := texts[p.hash]; !twice {
			texts[p.hash] = p.text
			hashes = append(hashes, p.hash)
		}
	}
	values := make(map[embedcache.TextHash][]float32, len(hashes))
	for page := range slices.Chunk(hashes, embedcache.CacheLookup) {
		found, err := m.w.cache.Vectors(ctx, model, page)
		if err != nil {
			return nil, err
		}
		for h, v := range found {
			if m.fits(len(v)) {
				values[h] = v
			}
		}
	}
	missing := slices.DeleteFunc(hashes, func(h embedcache.TextHash) bool { return values[h] != nil })
	var group errgroup.Group
	var mu sync.Mutex
	group.SetLimit(m.w.cfg.EmbedParallel)
	for part := range slices.Chunk(missing, max(1, m.w.d.Embedder.BatchSize())) {
		group.Go(guarded("embed", func() error {
			leave, err := m.w.embeds.enter(ctx, 1, func() { m.report(m.done, m.total) })
			if err != nil {
				return err
			}
			defer leave()
			made, err := m.pay(ctx, model, part, texts)
			if err != nil {
				return err
			}
			m.report(m.done, m.total) // it goes on
			mu.Lock()
			defer mu.Unlock()
			for _, e := range made {
				values[e.Hash] = e.Vector
			}
			return nil
		}))
	}
	return values, group.Wait()
}

// fits reports whether the embedding cache's vector has the dimension of this move.
func (m *moving) fits(dim int) bool {
	want := cmp.Or(m.dim, m.w.d.Embedder.Model().Dim)
	return want == 0 || dim == want
}

// refused finds the text that the model refuses, and names its document; what it does not refuse is paid for.
func (m *moving) refused(ctx context.Context, model string, hashes []embedcache.TextHash, texts map[embedcache.TextHash]string, err error) ([]embedcache.Entry, error) {
	if len(hashes) == 1 {
		p := m.pieces[slices.IndexFunc(m.pieces, func(p piece) bool { return p.hash == hashes[0] })]
		f := ingest.AsFailure(err)
		return nil, ingest.Permanent(f.Code, "Delete document "+p.document+", or cut it into smaller segments, and reindex the knowledge base again.",
			"move the knowledge base: document %s, segment %d: %w", p.document, p.index, f.Err)
	}
	var all []embedcache.Entry
	for i := range hashes {
		one, err := m.pay(ctx, model, hashes[i:i+1], texts)
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

// pay embeds texts and commits them to the embedding cache: an attempt that follows does not pay for them again.
func (m *moving) pay(ctx context.Context, model string, hashes []embedcache.TextHash, texts map[embedcache.TextHash]string) ([]embedcache.Entry, error) {
	some := make([]string, len(hashes))
	for i, h := range hashes {
		some[i] = texts[h]
	}
	made, err := oneEach(ctx, m.w.d.Embedder, some)
	if err != nil && ingest.AsFailure(err).Permanent {
		return m.refused(ctx, model, hashes, texts, err)
	}
	if err != nil {
		return nil, fmt.Errorf("move the knowledge base: %w", err)
	}
	entries := make([]embedcache.Entry, len(hashes))
	for i, h := range hashes {
		entries[i] = embedcache.Entry{Hash: h, Vector: made[i]}
	}
	return entries, m.w.cache.Add(ctx, model, entries)
}
