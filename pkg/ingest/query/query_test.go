package query_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

func TestSearchFindsVisibleSegments(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		a := w.Upload("one\ntwo\nthree")
		done := w.Process(a.Task.ID)
		require.Equal(t, taskstate.StatusSucceeded, done.Status)
		require.Equal(t, taskstate.Progress{Stage: taskstate.StageDone, Percent: 100, Processed: 3, Total: 3}, done.Progress)
		res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "two", TopK: 2, Mode: ingest.SearchVector})
		require.NoError(t, err)
		require.Len(t, res.Hits, 2)
		require.Equal(t, "two", res.Hits[0].Text)
		require.Equal(t, a.Document.ID, res.Hits[0].DocumentID)
		require.Equal(t, int64(1), res.Hits[0].Version)
		require.Equal(t, 1, res.Hits[0].SegmentIndex)
		require.InDelta(t, 1, res.Hits[0].Score, 1e-5)
		require.False(t, res.Partial)
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
		texts, partial := r.Search("two", 2)
		require.Empty(t, texts, "a deleted document is found by nobody from the answer on")
		require.False(t, partial)
	})
}

func TestSearchIsTheOwnersAlone(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	a := w.Upload("one")
	w.Process(a.Task.ID)
	for _, base := range []string{a.Document.BaseID, "", "no such base"} {
		_, err := r.Reads.Search(t.Context(), ingesttest.Foreign(), ingest.SearchRequest{Query: "one", Base: base})
		require.ErrorIs(t, err, ingest.ErrBaseNotFound, "base %q", base)
	}
}

// A version that is switched between the fetch and the join must not hide its successor (design D12).
func TestSearchStartsOverWhenAVersionIsSwitchedUnderIt(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	a := w.Upload("one\ntwo")
	w.Process(a.Task.ID)
	again := func(text string) {
		next := w.Accept(ingest.Upload{File: w.Receive("a.txt", text), DocumentID: a.Document.ID})
		w.Clock.Advance(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(next.Task.ID).Status)
	}
	r.Scan.After = func() {
		r.Scan.After = nil
		again("three\nfour")
	}
	texts, partial := r.Search("three", 2)
	require.Equal(t, "three", texts[0])
	require.Len(t, texts, 2)
	require.False(t, partial)
	n := 0
	r.Scan.After = func() { n++; again(fmt.Sprintf("five %d\nsix %d", n, n)) }
	_, partial = r.Search("five", 2)
	require.True(t, partial, "switched at every fetch: the answer says that it may be short")
	require.Equal(t, query.SearchAgain+1, n)
	r.Scan.After = nil
	_, partial = r.Search("five", 2)
	require.False(t, partial, "a switch before the fetch hides nothing")
}

func TestSearchLooksBehindVectorsThatNobodyMaySee(t *testing.T) {
	t.Parallel()
	for _, garbage := range []int{100, 3000} {
		t.Run(fmt.Sprint(garbage), func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			r := ingesttest.NewReadWorld(t, w)
			a := w.Upload("needle")
			w.Process(a.Task.ID)
			rows := make([]ingest.Vector, garbage)
			for i := range rows {
				rows[i] = ingest.Vector{ID: fmt.Sprintf("%064x", i), Birth: "dead", Values: ingesttest.VectorOfText("needle", w.Embed.Model_.Dim)}
			}
			require.NoError(t, w.Vectors.Upsert(t.Context(), a.Document.BaseID, rows))
			texts, partial := r.Search("needle", 1)
			require.Equal(t, []string{"needle"}, texts)
			require.False(t, partial)
			require.Greater(t, r.Scan.Queries, 1)
		})
	}
}

// A store that was lost, emptied or lost some vectors is no base without text: the searcher is told that hits are missing.
func TestSearchSaysWhenTheStoreHasLostVectors(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		var log bytes.Buffer
		r := ingesttest.NewReadWorld(t, w)
		r.Reads.SetTrouble(telemetry.NewRepeated(slog.New(slog.NewTextHandler(&log, nil)), time.Minute, time.Now))
		a := w.Upload("one\ntwo\nthree")
		texts, partial := r.Search("two", 5)
		require.Empty(t, texts)
		require.False(t, partial, "nothing is visible yet, so nothing is lost")
		w.Process(a.Task.ID)
		texts, partial = r.Search("two", 5)
		require.Len(t, texts, 3)
		require.False(t, partial, "the base has no more than that")

		ids, err := w.Vectors.List(t.Context(), a.Document.BaseID, 0, 10)
		require.NoError(t, err)
		require.NoError(t, w.Vectors.Delete(t.Context(), a.Document.BaseID, ids[:1]))
		texts, partial = r.Search("two", 5)
		require.Len(t, texts, 2)
		require.True(t, partial)
		require.NoError(t, w.Vectors.Drop(t.Context(), a.Document.BaseID))
		texts, partial = r.Search("two", 5)
		require.Empty(t, texts)
		require.True(t, partial)
		require.Contains(t, log.String(), "level=ERROR")
		require.Contains(t, log.String(), a.Document.BaseID)
	})
}

func TestSearchRefusesAnotherModel(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	w.Process(w.Upload("one").Task.ID)
	w.Embed.Model_.Key = "another"
	for _, mode := range []ingest.SearchMode{ingest.SearchVector, ingest.SearchHybrid} {
		_, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "one", Mode: mode})
		require.Equal(t, ingest.CodeDimension, ingest.AsFailure(err).Code)
		require.NotEmpty(t, ingest.AsFailure(err).Remedy)
	}
	res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "one"})
	require.NoError(t, err, "words need no model")
	require.Equal(t, ingest.SearchText, res.Mode)
	require.Len(t, res.Hits, 1)
}

func TestDocumentsAndSegmentsPage(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		var ids []string
		for i := range 3 {
			a := w.Accept(ingest.Upload{File: w.Receive(fmt.Sprintf("Doc_%d%%.txt", i), fmt.Sprintf("text %d\nmore %d", i, i)), Title: fmt.Sprintf("Title %d", i)})
			ids = append(ids, a.Document.ID)
			w.Advance(time.Second)
		}
		first, err := r.Reads.Document(t.Context(), w.Caller, ids[0])
		require.NoError(t, err)
		w.Process(first.LatestTaskID)
		for _, sort := range []taskstate.Sort{taskstate.SortCreated, taskstate.SortCreatedDesc, taskstate.SortUpdated, taskstate.SortUpdatedDesc, ""} {
			require.Len(t, r.Pages(sort), 3, "%s", sort)
		}
		require.Equal(t, ids, r.Pages(taskstate.SortCreated))
		for _, c := range []struct {
			q    ingest.ListQuery
			want int
		}{
			{ingest.ListQuery{Text: "doc_1%"}, 1}, {ingest.ListQuery{Text: "title"}, 3}, {ingest.ListQuery{Text: "d%c"}, 0},
			{ingest.ListQuery{Statuses: []ingest.DocumentStatus{ingest.DocumentReady}}, 1}, {ingest.ListQuery{Base: "default"}, 3},
		} {
			c.q.Limit = 10
			got, err := r.Reads.Documents(t.Context(), w.Caller, c.q)
			require.NoError(t, err)
			require.Len(t, got, c.want, "%+v", c.q)
		}
		got, err := r.Reads.Documents(t.Context(), ingesttest.Foreign(), ingest.ListQuery{Limit: 10})
		require.NoError(t, err)
		require.Empty(t, got)
		_, err = r.Reads.Document(t.Context(), ingesttest.Foreign(), ids[0])
		require.ErrorIs(t, err, ingest.ErrDocumentNotFound)
		d, err := r.Reads.Document(t.Context(), w.Caller, ids[0])
		require.NoError(t, err)
		require.Equal(t, ingest.DocumentReady, d.Status)
		require.Equal(t, 2, d.SegmentCount)
		page, err := r.Reads.Segments(t.Context(), w.Caller, ids[0], 0, 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, "more 0", page[0].Text)
		_, err = r.Reads.Segments(t.Context(), ingesttest.Foreign(), ids[0], -1, 10)
		require.ErrorIs(t, err, ingest.ErrDocumentNotFound)
		versions, err := r.Reads.Versions(t.Context(), w.Caller, ids[0], math.MaxInt64, 10)
		require.NoError(t, err)
		require.Len(t, versions, 1)
		v := versions[0]
		require.Equal(t, "VISIBLE", v.State)
		require.Equal(t, d.VisibleVersion, v.No)
		require.Equal(t, first.LatestTaskID, v.TaskID)
		require.Equal(t, 2, v.Segments)
		require.True(t, v.Kept)
		require.NotEmpty(t, v.Model)
		require.False(t, v.CreatedAt.IsZero())
		require.True(t, v.ClosedAt.IsZero())
		versions, err = r.Reads.Versions(t.Context(), w.Caller, ids[0], v.No, 10)
		require.NoError(t, err)
		require.Empty(t, versions, "none is below it")
		_, err = r.Reads.Versions(t.Context(), ingesttest.Foreign(), ids[0], math.MaxInt64, 10)
		require.ErrorIs(t, err, ingest.ErrDocumentNotFound)
		require.Equal(t, v.No, originalOf(t, r, ids[0], 0).Version)
		_, err = r.Reads.Original(t.Context(), ingesttest.Foreign(), ids[0], 0)
		require.ErrorIs(t, err, ingest.ErrDocumentNotFound)
		_, err = r.Reads.Original(t.Context(), w.Caller, ids[0], v.No+1)
		require.ErrorIs(t, err, ingest.ErrVersionNotFound)
	})
}

// originalOf reads the file of a version, and compares it with what is said of it.
func originalOf(t *testing.T, r *ingesttest.ReadWorld, document string, version int64) ingest.Original {
	t.Helper()
	o, err := r.Reads.Original(t.Context(), r.Caller, document, version)
	require.NoError(t, err)
	bytes, err := io.ReadAll(o.File)
	require.NoError(t, errors.Join(err, o.File.Close()))
	sum := sha256.Sum256(bytes)
	require.Equal(t, hex.EncodeToString(sum[:]), o.SHA256)
	require.Len(t, bytes, int(o.Bytes))
	return o
}

// The file of a document is that of the version that can be found, not of one that is being made.
func TestTheOriginalIsOfTheVisibleVersion(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		a := w.Upload("the old text")
		require.EqualValues(t, 1, originalOf(t, r, a.Document.ID, 0).Version, "none is visible")
		w.Process(a.Task.ID)
		w.Accept(ingest.Upload{File: w.Receive("a.txt", "the new text"), DocumentID: a.Document.ID})
		require.EqualValues(t, 1, originalOf(t, r, a.Document.ID, 0).Version)
		require.EqualValues(t, 2, originalOf(t, r, a.Document.ID, 2).Version)
	})
}

// A file that the sweeper removes between its row and its bytes is one that is not kept; one that its row still names is lost.
func TestTheOriginalGoesUnderItsReader(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	document := w.Upload("text").Document.ID
	swept := true
	reads := query.NewReads(query.ReadsDeps{Store: w.Store, Catalog: w.App.Catalog, Log: slog.New(slog.DiscardHandler), Open: func(file string) (*os.File, error) {
		if swept {
			_, err := w.Store.DB().ExecContext(t.Context(), "DELETE FROM stored_file")
			require.NoError(t, err)
		}
		require.NoError(t, w.App.Folder.Remove(file))
		return w.App.Folder.Open(file)
	}})
	_, err := reads.Original(t.Context(), w.Caller, document, 0)
	require.ErrorIs(t, err, ingest.ErrVersionGone)
	swept, document = false, w.Upload("other text").Document.ID
	_, err = reads.Original(t.Context(), w.Caller, document, 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, ingest.ErrVersionGone)
}

func TestBases(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		made, err := w.App.CreateBase(t.Context(), w.Caller, "notes", ingest.BaseSettings{})
		require.NoError(t, err)
		_, err = w.App.CreateBase(t.Context(), w.Caller, "notes", ingest.BaseSettings{})
		require.ErrorIs(t, err, ingest.ErrBaseExists)
		_, err = w.App.CreateBase(t.Context(), w.Caller, "Notes", ingest.BaseSettings{})
		require.NoError(t, err, "names are told apart by case")
		_, err = w.App.CreateBase(t.Context(), ingesttest.Foreign(), "notes", ingest.BaseSettings{})
		require.NoError(t, err, "another user's name is another name")
		byID, err := w.App.Base(t.Context(), w.Caller, made.ID)
		require.NoError(t, err)
		require.Equal(t, made, byID)
		_, err = w.App.Base(t.Context(), ingesttest.Foreign(), made.ID)
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
		first, err := r.Reads.Bases(t.Context(), w.Caller, ingest.ListQuery{Limit: 1})
		require.NoError(t, err)
		rest, err := r.Reads.Bases(t.Context(), w.Caller, ingest.ListQuery{After: &taskstate.Cursor{At: first[0].CreatedAt, ID: first[0].ID}, Limit: 10})
		require.NoError(t, err)
		require.Len(t, rest, 1)
		all, err := r.Reads.Bases(t.Context(), ingest.Caller{Scope: taskstate.System()}, ingest.ListQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, all, 3)

		done := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\ntwo"), Base: "notes"})
		w.Process(done.Task.ID)
		w.Advance(3 * time.Second)
		w.Accept(ingest.Upload{File: w.Receive("b.txt", "three"), Base: "notes"})
		w.Advance(2 * time.Second)
		s, err := r.Reads.BaseSummary(t.Context(), w.Caller, "notes")
		require.NoError(t, err)
		require.Equal(t, map[ingest.DocumentStatus]int64{ingest.DocumentReady: 1, ingest.DocumentQueued: 1}, s.Documents)
		require.EqualValues(t, 1, s.Tasks[taskstate.StatusSucceeded])
		require.EqualValues(t, 2, s.Segments)
		require.Equal(t, 50, s.Percent)
		require.GreaterOrEqual(t, s.OldestWaiting, time.Duration(0))
		counted, err := r.Reads.Bases(t.Context(), w.Caller, ingest.ListQuery{Limit: 10, Counts: true})
		require.NoError(t, err)
		for _, b := range counted {
			of, err := r.Reads.BaseSummary(t.Context(), w.Caller, b.ID)
			require.NoError(t, err)
			require.Equal(t, of.BaseCounts, *b.Counts, b.Name)
		}
		require.Nil(t, all[0].Counts, "not asked for")
		n, err := r.Reads.TaskCounts(t.Context(), w.Caller, "")
		require.NoError(t, err)
		require.Equal(t, map[taskstate.Status]int64{taskstate.StatusSucceeded: 1, taskstate.StatusQueued: 1}, n.Tasks)
		require.Len(t, n.Bases, 2)
		for _, b := range n.Bases {
			if b.Name == "notes" {
				require.Equal(t, s.Tasks, b.Counts.Tasks)
			} else {
				require.Empty(t, b.Counts.Tasks, b.Name)
			}
		}
		require.Empty(t, n.Stages, "nothing runs")
		only, err := r.Reads.TaskCounts(t.Context(), w.Caller, made.ID)
		require.NoError(t, err)
		require.Equal(t, n.Tasks, only.Tasks)
		require.Len(t, only.Bases, 1)
		foreign, err := r.Reads.TaskCounts(t.Context(), ingesttest.Foreign(), "")
		require.NoError(t, err)
		require.Empty(t, foreign.Tasks)
		require.Len(t, foreign.Bases, 1)
		_, err = r.Reads.TaskCounts(t.Context(), ingesttest.Foreign(), made.ID)
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
		tasks, err := r.Reads.Tasks(t.Context(), w.Caller, taskstate.Query{KnowledgeBase: "notes", Limit: 10})
		require.NoError(t, err)
		require.Len(t, tasks.Tasks, 2)
		_, err = r.Reads.Tasks(t.Context(), w.Caller, taskstate.Query{KnowledgeBase: "none", Limit: 10})
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
		_, err = r.Reads.BaseSummary(t.Context(), w.Caller, "none")
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
	})
}

// A base says what its searches look into, unless they say it themselves.
func TestSearchModeOfABase(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		searched := func(base string, mode ingest.SearchMode) ingest.SearchMode {
			res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "one", Base: base, Mode: mode})
			require.NoError(t, err)
			return res.Mode
		}
		made := w.Upload("one")
		w.Process(made.Task.ID)
		b, err := w.App.Base(t.Context(), w.Caller, "")
		require.NoError(t, err)
		require.Equal(t, ingest.SearchAuto, b.SearchMode)
		require.Equal(t, ingest.SearchHybrid, searched("", ""))

		w.Advance(time.Second)
		changed, err := w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{SearchMode: ingest.SearchText})
		require.NoError(t, err)
		read, err := w.App.Base(t.Context(), w.Caller, b.ID)
		require.NoError(t, err)
		require.Equal(t, ingest.SearchText, read.SearchMode)
		require.True(t, read.UpdatedAt.After(b.UpdatedAt))
		require.True(t, changed.UpdatedAt.Equal(read.UpdatedAt))
		changed.UpdatedAt = read.UpdatedAt
		require.Equal(t, changed, read)
		list, err := r.Reads.Bases(t.Context(), w.Caller, ingest.ListQuery{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []ingest.Base{read}, list)
		require.Equal(t, ingest.SearchText, searched("", ""))
		require.Equal(t, ingest.SearchVector, searched("", ingest.SearchVector), "the search says it itself")
		require.Equal(t, ingest.SearchHybrid, searched("", ingest.SearchAuto), "auto too is a wish")

		_, err = w.App.CreateBase(t.Context(), w.Caller, "near", ingest.BaseSettings{SearchMode: ingest.SearchVector})
		require.NoError(t, err)
		require.Equal(t, ingest.SearchVector, searched("near", ""))

		_, err = w.App.ChangeBase(t.Context(), ingesttest.Foreign(), b.ID, ingest.BaseSettings{SearchMode: ingest.SearchVector})
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
		refused := w.Caller
		refused.Guard = func(current any) error {
			require.Equal(t, ingest.SearchText, current.(ingest.Base).SearchMode)
			return ingest.ErrChanged
		}
		_, err = w.App.ChangeBase(t.Context(), refused, "", ingest.BaseSettings{SearchMode: ingest.SearchVector})
		require.ErrorIs(t, err, ingest.ErrChanged)
		require.Equal(t, ingest.SearchText, searched("", ""))
		require.NoError(t, w.App.DeleteBase(t.Context(), w.Caller, "near", false))
		_, err = w.App.ChangeBase(t.Context(), w.Caller, "near", ingest.BaseSettings{SearchMode: ingest.SearchText})
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
	})
}

func TestStatsEqualTheRows(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		w.Process(w.Upload("one").Task.ID)
		two := w.Upload("two")
		_, err := w.App.Suspend(t.Context(), ingest.Caller{Scope: taskstate.System()}, two.Task.ID, "look")
		require.NoError(t, err)
		w.Exec("INSERT INTO mirror_failure (task_id, reason, tries, created_at, updated_at) VALUES (?, 'no confirm', 3, ?, ?)",
			w.Upload("three").Task.ID, w.Clock.Now(), w.Clock.Now())
		s, err := r.Reads.Stats(t.Context(), ingest.Caller{Scope: taskstate.System()})
		require.NoError(t, err)
		for _, status := range taskstate.Statuses() {
			require.EqualValues(t, w.Number("SELECT COUNT(*) FROM ingest_task WHERE status = ?", string(status)), s.Tasks[status], "%s", status)
		}
		require.EqualValues(t, 3, s.Recent[taskstate.StatusQueued])
		require.EqualValues(t, 1, s.Recent[taskstate.StatusSucceeded])
		byMinute := map[taskstate.Status]int64{}
		for i, m := range s.Minutes {
			require.Zero(t, m.At.Second())
			require.True(t, i == 0 || s.Minutes[i-1].At.Before(m.At))
			for status, n := range m.Changes {
				byMinute[status] += n
			}
		}
		for status, n := range s.Recent {
			require.Equal(t, n, byMinute[status], status)
		}
		require.EqualValues(t, 2, s.SuspendedLength)
		require.NoError(t, testutil.CollectAndCompare(r.Reads.Lengths(), strings.NewReader(`
# HELP retry_length Tasks that wait for their next attempt.
# TYPE retry_length gauge
retry_length 0
# HELP suspended_length Tasks that a person has to look at: suspended, or without a copy in RabbitMQ.
# TYPE suspended_length gauge
suspended_length 2
`)))
		require.NoError(t, w.Store.Close())
		require.Zero(t, testutil.CollectAndCount(r.Reads.Lengths()), "what is not known is absent")
	})
}

// Bases and documents have the filters and orders of contract §4; each is compared with the same done by hand.
func TestListsFilterAndSort(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		for i, name := range []string{"Übersicht", "alpha_1", "alphaX1", "beta", "100%"} {
			b, err := w.App.CreateBase(t.Context(), w.Caller, name, ingest.BaseSettings{})
			require.NoError(t, err)
			w.Advance(time.Second)
			w.Accept(ingest.Upload{File: w.Receive(name+".txt", fmt.Sprint("text ", i)), Base: b.ID, Title: "T " + name})
			w.Advance(time.Second)
		}
		bases, err := r.Reads.Bases(t.Context(), w.Caller, ingest.ListQuery{Sort: taskstate.SortCreated, Limit: 50})
		require.NoError(t, err)
		require.Len(t, bases, 5)
		documents, err := r.Reads.Documents(t.Context(), w.Caller, ingest.ListQuery{Sort: taskstate.SortCreated, Limit: 50})
		require.NoError(t, err)
		require.Len(t, documents, 5)
		names := func(q ingest.ListQuery) (out []string) {
			for q.Limit = 2; ; {
				page, err := r.Reads.Bases(t.Context(), w.Caller, q)
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
		require.Equal(t, []string{"100%", "beta", "alphaX1", "alpha_1", "Übersicht"}, names(ingest.ListQuery{}))
		for _, sort := range []taskstate.Sort{taskstate.SortCreated, taskstate.SortUpdated} {
			require.Equal(t, []string{"Übersicht", "alpha_1", "alphaX1", "beta", "100%"}, names(ingest.ListQuery{Sort: sort}), sort)
			require.Equal(t, []string{"100%", "beta", "alphaX1", "alpha_1", "Übersicht"}, names(ingest.ListQuery{Sort: "-" + sort}), sort)
		}
		require.Equal(t, []string{"alpha_1"}, names(ingest.ListQuery{Text: "A_1"}), "an underscore is no wildcard")
		require.Equal(t, []string{"100%"}, names(ingest.ListQuery{Text: "%"}))
		require.Equal(t, []string{"100%", "beta"}, names(ingest.ListQuery{Times: ingest.Times{CreatedAfter: third.CreatedAt}}))
		require.Equal(t, []string{"alpha_1", "Übersicht"}, names(ingest.ListQuery{Times: ingest.Times{CreatedBefore: third.CreatedAt}}))
		require.Equal(t, []string{"alpha_1"}, names(ingest.ListQuery{Times: ingest.Times{UpdatedAfter: bases[0].UpdatedAt, UpdatedBefore: third.UpdatedAt}}))

		middle := documents[2]
		titles := func(times ingest.Times) (out []string) {
			found, err := r.Reads.Documents(t.Context(), w.Caller, ingest.ListQuery{Times: times, Sort: taskstate.SortCreated, Limit: 50})
			require.NoError(t, err)
			for _, d := range found {
				out = append(out, d.Title)
			}
			return out
		}
		require.Equal(t, []string{"T beta", "T 100%"}, titles(ingest.Times{CreatedAfter: middle.CreatedAt}))
		require.Equal(t, []string{"T Übersicht", "T alpha_1"}, titles(ingest.Times{CreatedBefore: middle.CreatedAt}))
		require.Equal(t, []string{"T alphaX1", "T beta"}, titles(ingest.Times{UpdatedAfter: documents[1].UpdatedAt, UpdatedBefore: documents[4].UpdatedAt}))

		require.Equal(t, taskstate.StatusSucceeded, w.Process(documents[1].LatestTaskID).Status)
		job, _ := w.Claim(documents[3].LatestTaskID)
		progress := taskstate.Progress{Stage: ingest.StageEmbed, Percent: 40, Processed: 4, Total: 10}
		lost, err := w.Store.Heartbeat(t.Context(), w.Policy.Lease, []taskstate.Beat{{
			TaskID: job.Task.ID, Status: taskstate.StatusRunning, Token: job.Token, Owner: job.Task.LeaseOwner, Progress: &progress,
		}})
		require.NoError(t, err)
		require.Empty(t, lost)
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, documents[4].ID))
		for _, c := range []struct {
			statuses []ingest.DocumentStatus
			stage    taskstate.Stage
			base     string
			want     []string // bases, each with one document
		}{
			{stage: taskstate.StageDone, want: []string{"alpha_1"}},
			{stage: ingest.StageEmbed, want: []string{"beta"}},
			{stage: taskstate.StageNone, want: []string{"alphaX1", "Übersicht"}},
			{stage: ingest.StageIndex},
			{statuses: []ingest.DocumentStatus{ingest.DocumentReady}, want: []string{"alpha_1"}},
			{statuses: []ingest.DocumentStatus{ingest.DocumentReady, ingest.DocumentProcessing}, want: []string{"beta", "alpha_1"}},
			{statuses: []ingest.DocumentStatus{ingest.DocumentFailed}},
			{statuses: []ingest.DocumentStatus{ingest.DocumentReady}, stage: taskstate.StageDone, base: "alpha_1", want: []string{"alpha_1"}},
			{statuses: []ingest.DocumentStatus{ingest.DocumentReady}, stage: ingest.StageEmbed},
			{statuses: []ingest.DocumentStatus{ingest.DocumentReady}, base: "beta"},
		} {
			require.Equal(t, c.want, names(ingest.ListQuery{Base: c.base, Statuses: c.statuses, Stage: c.stage}), "bases %+v", c)
			found, err := r.Reads.Documents(t.Context(), w.Caller, ingest.ListQuery{
				Base: c.base, Statuses: c.statuses, Stage: c.stage, Sort: taskstate.SortCreatedDesc, Limit: 50,
			})
			require.NoError(t, err)
			var of []string
			for _, d := range found {
				of = append(of, d.BaseName)
			}
			require.Equal(t, c.want, of, "documents %+v", c)
		}
		_, err = r.Reads.Bases(t.Context(), w.Caller, ingest.ListQuery{Base: "none", Limit: 1})
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
		_, err = r.Reads.Bases(t.Context(), ingesttest.Foreign(), ingest.ListQuery{Base: bases[0].ID, Limit: 1})
		require.ErrorIs(t, err, ingest.ErrBaseNotFound)
	})
}

// A page of documents costs what it shows, however many there are, and also where one base has all; so does a search for what few are.
func TestAPageOfDocumentsReadsNoOthers(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d"))
	w := ingesttest.NewWorld(t, ingesttest.Options{Database: server.DSN("d")})
	r := ingesttest.NewReadWorld(t, w)
	id := lines(w, "otter")
	const many = 5000
	w.Exec(`INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, latest_task_id, visible_version_id,
			created_at, updated_at, sweep_at)
		SELECT CONCAT('0190a6e0-0000-7000-8000-', LPAD(s.seq, 12, '0')), user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, latest_task_id,
		       CONCAT('0190a6e0-0000-7000-8000-', LPAD(s.seq, 12, '0')), created_at - INTERVAL s.seq SECOND, updated_at - INTERVAL s.seq SECOND, sweep_at FROM knowledge_document JOIN seq_1_to_5000 s WHERE id = ?`, id)
	w.Exec("ANALYZE TABLE knowledge_document")
	looked := func() float64 {
		counters, err := server.Counters(t.Context())
		require.NoError(t, err)
		return counters.RowsRead
	}
	base := w.Document(id).BaseID
	for _, scope := range []taskstate.Scope{taskstate.System(), r.Caller.Scope} {
		for _, in := range []string{"", base} {
			for _, sort := range []taskstate.Sort{taskstate.SortUpdatedDesc, taskstate.SortUpdated, taskstate.SortCreatedDesc, taskstate.SortCreated} {
				caller := r.Caller
				caller.Scope = scope
				before := looked()
				page, err := r.Reads.Documents(t.Context(), caller, ingest.ListQuery{Base: in, Sort: sort, Limit: 20})
				require.NoError(t, err)
				require.Len(t, page, 20)
				require.Less(t, looked()-before, many/10.0, "%v %q %v", scope, in, sort)
			}
		}
	}
	operator := r.Caller
	operator.Scope = taskstate.System()
	before := looked()
	failed, err := r.Reads.Documents(t.Context(), operator, ingest.ListQuery{Statuses: []ingest.DocumentStatus{ingest.DocumentFailed}, Limit: 20})
	require.NoError(t, err)
	require.Empty(t, failed)
	require.Less(t, looked()-before, many/10.0)
	everyMode(t, func(mode ingest.SearchMode) {
		before := looked()
		found := search(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, Filter: ingest.SearchFilter{MediaTypes: []string{"application/pdf"}}})
		require.Empty(t, found.Hits)
		require.Less(t, looked()-before, many/10.0, mode)
	})
}
