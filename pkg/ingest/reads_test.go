package ingest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

// scanVectors returns queries over memoryVectors by an exact scan; before runs between a fetch and its answer.
type scanVectors struct {
	*memoryVectors
	queries int
	after   func()
}

// Query implements VectorStore.
func (s *scanVectors) Query(_ context.Context, base string, vector []float32, k int, births []string) ([]Hit, error) {
	s.queries++
	wanted := map[string]bool{}
	for _, b := range births {
		wanted[b] = true
	}
	var hits []Hit
	if err := s.do("query", func() {
		for id, row := range s.rows[base] {
			if len(births) > 0 && !wanted[row.Birth] {
				continue
			}
			hits = append(hits, Hit{ID: id, Score: cosine(vector, row.Values)})
		}
	}); err != nil {
		return nil, err
	}
	sort.Slice(hits, func(i, j int) bool {
		return hits[i].Score > hits[j].Score || hits[i].Score == hits[j].Score && hits[i].ID < hits[j].ID
	})
	if s.after != nil {
		s.after()
	}
	return hits[:min(k, len(hits))], nil
}

// cosine is the similarity that stores score by.
func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i, x := range a {
		y := b[i]
		dot, aa, bb = dot+float64(x*y), aa+float64(x*x), bb+float64(y*y)
	}
	return dot / math.Sqrt(aa*bb)
}

// readWorld is a world with the read side on it.
type readWorld struct {
	*world
	reads *Reads
	scan  *scanVectors
}

func newReadWorld(t *testing.T, w *world) *readWorld {
	t.Helper()
	r := &readWorld{world: w, scan: &scanVectors{memoryVectors: w.vectors}}
	var err error
	r.reads, err = NewReads(ReadsDeps{Store: w.store, Embedder: w.embed, Vectors: r.scan, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return r
}

// search returns the texts found.
func (r *readWorld) search(query string, k int) (texts []string, partial bool) {
	r.t.Helper()
	res, err := r.reads.Search(r.t.Context(), r.caller, SearchRequest{Query: query, TopK: k})
	require.NoError(r.t, err)
	for _, h := range res.Hits {
		texts = append(texts, h.Text)
	}
	return texts, res.Partial
}

// foreign is a caller who owns nothing.
func foreign() Caller {
	return Caller{Scope: taskstate.Scope{UserID: "mallory", Role: taskstate.RoleUser}}
}

func TestSearchFindsVisibleSegments(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		r := newReadWorld(t, w)
		a := w.upload("one\ntwo\nthree")
		done := w.process(a.Task.ID)
		require.Equal(t, taskstate.StatusSucceeded, done.Status)
		require.Equal(t, taskstate.Progress{Stage: taskstate.StageDone, Percent: 100, Processed: 3, Total: 3}, done.Progress)
		res, err := r.reads.Search(t.Context(), w.caller, SearchRequest{Query: "two", TopK: 2})
		require.NoError(t, err)
		require.Len(t, res.Hits, 2)
		require.Equal(t, "two", res.Hits[0].Text)
		require.Equal(t, a.Document.ID, res.Hits[0].DocumentID)
		require.Equal(t, int64(1), res.Hits[0].Version)
		require.Equal(t, 1, res.Hits[0].SegmentIndex)
		require.InDelta(t, 1, res.Hits[0].Score, 1e-5)
		require.False(t, res.Partial)
		require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
		texts, partial := r.search("two", 2)
		require.Empty(t, texts, "a deleted document is found by nobody from the answer on")
		require.False(t, partial)
	})
}

func TestSearchIsTheOwnersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	r := newReadWorld(t, w)
	a := w.upload("one")
	w.process(a.Task.ID)
	for _, base := range []string{a.Document.BaseID, "", "no such base"} {
		_, err := r.reads.Search(t.Context(), foreign(), SearchRequest{Query: "one", Base: base})
		require.ErrorIs(t, err, ErrBaseNotFound, "base %q", base)
	}
}

// A version that is switched between the fetch and the join must not hide its successor (design D12).
func TestSearchStartsOverWhenAVersionIsSwitchedUnderIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	r := newReadWorld(t, w)
	a := w.upload("one\ntwo")
	w.process(a.Task.ID)
	again := func(text string) {
		next := w.accept(Upload{File: w.receive("a.txt", text), DocumentID: a.Document.ID})
		w.clock.advance(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.process(next.Task.ID).Status)
	}
	r.scan.after = func() {
		r.scan.after = nil
		again("three\nfour")
	}
	texts, partial := r.search("three", 2)
	require.Equal(t, "three", texts[0])
	require.Len(t, texts, 2)
	require.False(t, partial)
	n := 0
	r.scan.after = func() { n++; again(fmt.Sprintf("five %d\nsix %d", n, n)) }
	_, partial = r.search("five", 2)
	require.True(t, partial, "switched at every fetch: the answer says that it may be short")
	require.Equal(t, searchAgain+1, n)
	r.scan.after = nil
	_, partial = r.search("five", 2)
	require.False(t, partial, "a switch before the fetch hides nothing")
}

func TestSearchLooksBehindVectorsThatNobodyMaySee(t *testing.T) {
	t.Parallel()
	for _, garbage := range []int{100, 3000} {
		t.Run(fmt.Sprint(garbage), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			r := newReadWorld(t, w)
			a := w.upload("needle")
			w.process(a.Task.ID)
			rows := make([]Vector, garbage)
			for i := range rows {
				rows[i] = Vector{ID: fmt.Sprintf("%064x", i), Birth: "dead", Values: vectorOfText("needle", w.embed.model.Dim)}
			}
			require.NoError(t, w.vectors.Upsert(t.Context(), a.Document.BaseID, rows))
			texts, partial := r.search("needle", 1)
			require.Equal(t, []string{"needle"}, texts)
			require.False(t, partial)
			require.Greater(t, r.scan.queries, 1)
		})
	}
}

// A store that was lost, emptied or lost some vectors is no base without text: the searcher is told that hits are missing.
func TestSearchSaysWhenTheStoreHasLostVectors(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		r := newReadWorld(t, w)
		r.reads.trouble = telemetry.NewRepeated(slog.New(slog.NewTextHandler(&log, nil)), time.Minute, time.Now)
		a := w.upload("one\ntwo\nthree")
		texts, partial := r.search("two", 5)
		require.Empty(t, texts)
		require.False(t, partial, "nothing is visible yet, so nothing is lost")
		w.process(a.Task.ID)
		texts, partial = r.search("two", 5)
		require.Len(t, texts, 3)
		require.False(t, partial, "the base has no more than that")

		ids, err := w.vectors.List(t.Context(), a.Document.BaseID, 0, 10)
		require.NoError(t, err)
		require.NoError(t, w.vectors.Delete(t.Context(), a.Document.BaseID, ids[:1]))
		texts, partial = r.search("two", 5)
		require.Len(t, texts, 2)
		require.True(t, partial)
		require.NoError(t, w.vectors.Drop(t.Context(), a.Document.BaseID))
		texts, partial = r.search("two", 5)
		require.Empty(t, texts)
		require.True(t, partial)
		require.Contains(t, log.String(), "level=ERROR")
		require.Contains(t, log.String(), a.Document.BaseID)
	})
}

func TestSearchRefusesAnotherModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	r := newReadWorld(t, w)
	w.process(w.upload("one").Task.ID)
	w.embed.model.Key = "another"
	_, err := r.reads.Search(t.Context(), w.caller, SearchRequest{Query: "one"})
	require.Equal(t, CodeDimension, AsFailure(err).Code)
	require.NotEmpty(t, AsFailure(err).Remedy)
}

func TestDocumentsAndSegmentsPage(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		r := newReadWorld(t, w)
		var ids []string
		for i := range 3 {
			a := w.accept(Upload{File: w.receive(fmt.Sprintf("Doc_%d%%.txt", i), fmt.Sprintf("text %d\nmore %d", i, i)), Title: fmt.Sprintf("Title %d", i)})
			ids = append(ids, a.Document.ID)
			w.advance(time.Second)
		}
		first, err := r.reads.Document(t.Context(), w.caller, ids[0])
		require.NoError(t, err)
		w.process(first.LatestTaskID)
		for _, sort := range []taskstate.Sort{taskstate.SortCreated, taskstate.SortCreatedDesc, taskstate.SortUpdated, taskstate.SortUpdatedDesc, ""} {
			require.Len(t, r.pages(sort), 3, "%s", sort)
		}
		require.Equal(t, ids, r.pages(taskstate.SortCreated))
		for _, c := range []struct {
			q    DocumentQuery
			want int
		}{
			{DocumentQuery{Text: "doc_1%"}, 1}, {DocumentQuery{Text: "title"}, 3}, {DocumentQuery{Text: "d%c"}, 0},
			{DocumentQuery{Statuses: []DocumentStatus{DocumentReady}}, 1}, {DocumentQuery{Base: "default"}, 3},
		} {
			c.q.Limit = 10
			got, err := r.reads.Documents(t.Context(), w.caller, c.q)
			require.NoError(t, err)
			require.Len(t, got, c.want, "%+v", c.q)
		}
		got, err := r.reads.Documents(t.Context(), foreign(), DocumentQuery{Limit: 10})
		require.NoError(t, err)
		require.Empty(t, got)
		_, err = r.reads.Document(t.Context(), foreign(), ids[0])
		require.ErrorIs(t, err, ErrDocumentNotFound)
		d, err := r.reads.Document(t.Context(), w.caller, ids[0])
		require.NoError(t, err)
		require.Equal(t, DocumentReady, d.Status)
		require.Equal(t, 2, d.SegmentCount)
		page, err := r.reads.Segments(t.Context(), w.caller, ids[0], 0, 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, "more 0", page[0].Text)
		_, err = r.reads.Segments(t.Context(), foreign(), ids[0], -1, 10)
		require.ErrorIs(t, err, ErrDocumentNotFound)
	})
}

// pages lists all documents one by one.
func (r *readWorld) pages(sort taskstate.Sort) (ids []string) {
	r.t.Helper()
	q := DocumentQuery{Sort: sort, Limit: 1}
	for {
		page, err := r.reads.Documents(r.t.Context(), r.caller, q)
		require.NoError(r.t, err)
		if len(page) == 0 {
			return ids
		}
		ids = append(ids, page[0].ID)
		at := page[0].UpdatedAt
		if sort == taskstate.SortCreated || sort == taskstate.SortCreatedDesc {
			at = page[0].CreatedAt
		}
		q.After = &taskstate.Cursor{At: at, ID: page[0].ID}
	}
}

func TestBases(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		r := newReadWorld(t, w)
		made, err := r.reads.CreateBase(t.Context(), w.caller, "notes")
		require.NoError(t, err)
		_, err = r.reads.CreateBase(t.Context(), w.caller, "notes")
		require.ErrorIs(t, err, ErrBaseExists)
		_, err = r.reads.CreateBase(t.Context(), w.caller, "Notes")
		require.NoError(t, err, "names are told apart by case")
		_, err = r.reads.CreateBase(t.Context(), foreign(), "notes")
		require.NoError(t, err, "another user's name is another name")
		byID, err := r.reads.Base(t.Context(), w.caller, made.ID)
		require.NoError(t, err)
		require.Equal(t, made, byID)
		_, err = r.reads.Base(t.Context(), foreign(), made.ID)
		require.ErrorIs(t, err, ErrBaseNotFound)
		first, err := r.reads.Bases(t.Context(), w.caller, BaseQuery{Limit: 1})
		require.NoError(t, err)
		rest, err := r.reads.Bases(t.Context(), w.caller, BaseQuery{After: &taskstate.Cursor{At: first[0].CreatedAt, ID: first[0].ID}, Limit: 10})
		require.NoError(t, err)
		require.Len(t, rest, 1)
		all, err := r.reads.Bases(t.Context(), Caller{Scope: taskstate.System()}, BaseQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, all, 3)

		done := w.accept(Upload{File: w.receive("a.txt", "one\ntwo"), Base: "notes"})
		w.process(done.Task.ID)
		w.advance(3 * time.Second)
		w.accept(Upload{File: w.receive("b.txt", "three"), Base: "notes"})
		w.advance(2 * time.Second)
		s, err := r.reads.BaseSummary(t.Context(), w.caller, "notes")
		require.NoError(t, err)
		require.Equal(t, map[DocumentStatus]int64{DocumentReady: 1, DocumentQueued: 1}, s.Documents)
		require.EqualValues(t, 1, s.Tasks[taskstate.StatusSucceeded])
		require.EqualValues(t, 2, s.Segments)
		require.Equal(t, 50, s.Percent)
		require.GreaterOrEqual(t, s.OldestWaiting, time.Duration(0))
		tasks, err := r.reads.Tasks(t.Context(), w.caller, taskstate.Query{KnowledgeBase: "notes", Limit: 10})
		require.NoError(t, err)
		require.Len(t, tasks, 2)
		_, err = r.reads.Tasks(t.Context(), w.caller, taskstate.Query{KnowledgeBase: "none", Limit: 10})
		require.ErrorIs(t, err, ErrBaseNotFound)
		_, err = r.reads.BaseSummary(t.Context(), w.caller, "none")
		require.ErrorIs(t, err, ErrBaseNotFound)
	})
}

func TestStatsEqualTheRows(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		r := newReadWorld(t, w)
		w.process(w.upload("one").Task.ID)
		w.upload("two")
		s, err := r.reads.Stats(t.Context(), Caller{Scope: taskstate.System()})
		require.NoError(t, err)
		for _, status := range taskstate.Statuses() {
			require.EqualValues(t, w.number("SELECT COUNT(*) FROM ingest_task WHERE status = ?", string(status)), s.Tasks[status], "%s", status)
		}
		require.EqualValues(t, 2, s.Recent[taskstate.StatusQueued])
		require.EqualValues(t, 1, s.Recent[taskstate.StatusSucceeded])
	})
}

func TestExplainEachState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	r := newReadWorld(t, w)
	a := w.upload("one")
	said := func(words ...string) {
		t.Helper()
		e, err := r.reads.Explain(t.Context(), w.caller, a.Task.ID)
		require.NoError(t, err)
		for _, want := range words {
			require.Contains(t, e.Words, want)
		}
	}
	said("is QUEUED", "a worker with a free slot claims it")
	job, _ := w.claim(a.Task.ID)
	said("is RUNNING", "p1 holds it until")
	w.advance(time.Minute)
	said("but its lease expired at")
	_, err := w.finish(t.Context(), job, taskrun.Result{Err: Transient(CodeVector, "index: connection refused")})
	require.NoError(t, err)
	said("is RETRYING", "1 of 3 attempts failed", "connection refused", "attempt 2 of 3 starts")
	_, err = w.app.Cancel(t.Context(), w.caller, a.Task.ID)
	require.NoError(t, err)
	said("is CANCELLED", "nothing until somebody retries it")
	_, err = r.reads.Explain(t.Context(), foreign(), a.Task.ID)
	require.ErrorIs(t, err, taskstate.ErrNotFound)
}

// Bases and documents have the filters and orders of contract §4; each is compared with the same done by hand.
func TestListsFilterAndSort(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		r := newReadWorld(t, w)
		for i, name := range []string{"Übersicht", "alpha_1", "alphaX1", "beta", "100%"} {
			b, err := r.reads.CreateBase(t.Context(), w.caller, name)
			require.NoError(t, err)
			w.advance(time.Second)
			w.accept(Upload{File: w.receive(name+".txt", fmt.Sprint("text ", i)), Base: b.ID, Title: "T " + name})
			w.advance(time.Second)
		}
		bases, err := r.reads.Bases(t.Context(), w.caller, BaseQuery{Sort: taskstate.SortCreated, Limit: 50})
		require.NoError(t, err)
		require.Len(t, bases, 5)
		documents, err := r.reads.Documents(t.Context(), w.caller, DocumentQuery{Sort: taskstate.SortCreated, Limit: 50})
		require.NoError(t, err)
		require.Len(t, documents, 5)
		names := func(q BaseQuery) (out []string) {
			for q.Limit = 2; ; {
				page, err := r.reads.Bases(t.Context(), w.caller, q)
				require.NoError(t, err)
				for _, b := range page {
					out = append(out, b.Name)
				}
				if len(page) < q.Limit {
					return out
				}
				last := page[len(page)-1]
				if q.After = &(taskstate.Cursor{At: last.CreatedAt, ID: last.ID}); q.Sort == taskstate.SortUpdated || q.Sort == taskstate.SortUpdatedDesc {
					q.After.At = last.UpdatedAt
				}
			}
		}
		third := bases[2]
		require.Equal(t, []string{"100%", "beta", "alphaX1", "alpha_1", "Übersicht"}, names(BaseQuery{}))
		for _, sort := range []taskstate.Sort{taskstate.SortCreated, taskstate.SortUpdated} {
			require.Equal(t, []string{"Übersicht", "alpha_1", "alphaX1", "beta", "100%"}, names(BaseQuery{Sort: sort}), sort)
			require.Equal(t, []string{"100%", "beta", "alphaX1", "alpha_1", "Übersicht"}, names(BaseQuery{Sort: "-" + sort}), sort)
		}
		require.Equal(t, []string{"alpha_1"}, names(BaseQuery{Text: "A_1"}), "an underscore is no wildcard")
		require.Equal(t, []string{"100%"}, names(BaseQuery{Text: "%"}))
		require.Equal(t, []string{"100%", "beta"}, names(BaseQuery{Times: Times{CreatedAfter: third.CreatedAt}}))
		require.Equal(t, []string{"alpha_1", "Übersicht"}, names(BaseQuery{Times: Times{CreatedBefore: third.CreatedAt}}))
		require.Equal(t, []string{"alpha_1"}, names(BaseQuery{Times: Times{UpdatedAfter: bases[0].UpdatedAt, UpdatedBefore: third.UpdatedAt}}))

		middle := documents[2]
		titles := func(times Times) (out []string) {
			found, err := r.reads.Documents(t.Context(), w.caller, DocumentQuery{Times: times, Sort: taskstate.SortCreated, Limit: 50})
			require.NoError(t, err)
			for _, d := range found {
				out = append(out, d.Title)
			}
			return out
		}
		require.Equal(t, []string{"T beta", "T 100%"}, titles(Times{CreatedAfter: middle.CreatedAt}))
		require.Equal(t, []string{"T Übersicht", "T alpha_1"}, titles(Times{CreatedBefore: middle.CreatedAt}))
		require.Equal(t, []string{"T alphaX1", "T beta"}, titles(Times{UpdatedAfter: documents[1].UpdatedAt, UpdatedBefore: documents[4].UpdatedAt}))

		require.Equal(t, taskstate.StatusSucceeded, w.process(documents[1].LatestTaskID).Status)
		job, _ := w.claim(documents[3].LatestTaskID)
		progress := taskstate.Progress{Stage: taskstate.StageEmbed, Percent: 40, Processed: 4, Total: 10}
		lost, err := w.store.Heartbeat(t.Context(), w.policy.Lease, []taskstate.Beat{{
			TaskID: job.Task.ID, Status: taskstate.StatusRunning, Token: job.Token, Owner: job.Task.LeaseOwner, Progress: &progress,
		}})
		require.NoError(t, err)
		require.Empty(t, lost)
		require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, documents[4].ID))
		for _, c := range []struct {
			statuses []DocumentStatus
			stage    taskstate.Stage
			base     string
			want     []string // bases, each with one document
		}{
			{stage: taskstate.StageDone, want: []string{"alpha_1"}},
			{stage: taskstate.StageEmbed, want: []string{"beta"}},
			{stage: taskstate.StageNone, want: []string{"alphaX1", "Übersicht"}},
			{stage: taskstate.StageIndex},
			{statuses: []DocumentStatus{DocumentReady}, want: []string{"alpha_1"}},
			{statuses: []DocumentStatus{DocumentReady, DocumentProcessing}, want: []string{"beta", "alpha_1"}},
			{statuses: []DocumentStatus{DocumentFailed}},
			{statuses: []DocumentStatus{DocumentReady}, stage: taskstate.StageDone, base: "alpha_1", want: []string{"alpha_1"}},
			{statuses: []DocumentStatus{DocumentReady}, stage: taskstate.StageEmbed},
			{statuses: []DocumentStatus{DocumentReady}, base: "beta"},
		} {
			require.Equal(t, c.want, names(BaseQuery{Base: c.base, Statuses: c.statuses, Stage: c.stage}), "bases %+v", c)
			found, err := r.reads.Documents(t.Context(), w.caller, DocumentQuery{
				Base: c.base, Statuses: c.statuses, Stage: c.stage, Sort: taskstate.SortCreatedDesc, Limit: 50,
			})
			require.NoError(t, err)
			var of []string
			for _, d := range found {
				of = append(of, d.BaseName)
			}
			require.Equal(t, c.want, of, "documents %+v", c)
		}
		_, err = r.reads.Bases(t.Context(), w.caller, BaseQuery{Base: "none", Limit: 1})
		require.ErrorIs(t, err, ErrBaseNotFound)
		_, err = r.reads.Bases(t.Context(), foreign(), BaseQuery{Base: bases[0].ID, Limit: 1})
		require.ErrorIs(t, err, ErrBaseNotFound)
	})
}
