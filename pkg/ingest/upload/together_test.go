package upload_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/upload"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// submits counts the calls of Submit and the statements that the application adds to them.
type submits struct {
	taskstate.Database
	calls, statements atomic.Int64
	before            func(ctx context.Context, n int64) error // in the n-th transaction, when the uploads' rows are written
	first             func()                                   // before the first transaction
}

func (s *submits) Submit(ctx context.Context, prepare taskstate.PrepareFunc) ([]taskstate.Task, error) {
	n := s.calls.Add(1)
	if n == 1 && s.first != nil {
		s.first()
	}
	return s.Database.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		tasks, err := prepare(ctx, countedTx{tx, &s.statements}, m)
		if err == nil && s.before != nil {
			err = s.before(ctx, n)
		}
		return tasks, err
	})
}

type countedTx struct {
	taskstate.Tx
	n *atomic.Int64
}

func (t countedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.n.Add(1)
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t countedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.n.Add(1)
	return t.Tx.QueryContext(ctx, query, args...)
}

// counted makes the world's application one whose transactions are counted.
func (w *world) counted() *submits {
	s := &submits{Database: w.Store}
	w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Store = s }})
	return s
}

// together accepts uploads of any callers in one batch: an idle application takes what comes at once as one.
func (w *world) together(items ...*upload.Accepting) ([]ingest.Accepted, []error) {
	w.T.Helper()
	return w.App.Together(w.T.Context(), items...)
}

// of is an upload of a user into a batch.
func (w *world) of(user string, u ingest.Upload) *upload.Accepting {
	w.T.Helper()
	c := w.Caller
	c.Scope.UserID = user
	x, err := upload.NewAccepting(c, u)
	require.NoError(w.T, err)
	return x
}

// file is an upload of a text.
func (w *world) file(text string) ingest.Upload {
	w.T.Helper()
	return ingest.Upload{File: w.Receive("a.txt", text)}
}

// likeRows compares answers with what the database holds.
func (w *world) likeRows(answers ...ingest.Accepted) {
	w.T.Helper()
	for _, a := range answers {
		require.Equal(w.T, w.Task(a.Task.ID), a.Task)
		require.Equal(w.T, w.Document(a.Document.ID).Document(a.Document.BaseName), a.Document)
		require.Equal(w.T, 1, w.Number(`SELECT COUNT(*) FROM ingest_task_transition WHERE task_id = ?`, a.Task.ID))
		require.Equal(w.T, 1, w.Number(`SELECT COUNT(*) FROM document_version v JOIN stored_file f ON f.id = v.file_id
			WHERE v.task_id = ? AND v.document_id = ? AND f.path = ? AND v.state = 'BUILDING'`, a.Task.ID, a.Document.ID, a.Task.FilePath))
	}
}

func TestUploadsOfABatchShareTheirStatements(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		s := w.counted()
		var uploads []*upload.Accepting
		for i := range 100 {
			uploads = append(uploads, w.of(fmt.Sprintf("user %d", i%3), w.file(fmt.Sprintf("text %d\n", i))))
		}
		got, errs := w.together(uploads...)
		require.NoError(t, errors.Join(errs...))
		require.EqualValues(t, 1, s.calls.Load())
		require.EqualValues(t, 8, s.statements.Load(), "bases, default bases made, bases, same bytes, files, documents, their counts, versions")
		w.likeRows(got...)
		for i, a := range got {
			require.Equal(t, uploads[i].U().File.ID, a.Task.FilePath, "each has its own file")
			require.Equal(t, uploads[i].C().Scope.UserID, a.Task.UserID)
		}
		require.Equal(t, 3, w.Number(`SELECT COUNT(*) FROM knowledge_base`))
		require.Len(t, w.Stored(), 100)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(got[99].Task.ID).Status)
		require.Equal(t, []string{"text 99"}, w.Text(got[99].Document.ID))
	})
}

func TestTheSameBytesInOneBatch(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		s := w.counted()
		got, errs := w.together(
			w.of("anna", w.file("one\n")), w.of("anna", w.file("one\n")), w.of("bob", w.file("one\n")), w.of("anna", w.file("two\n")), w.of("anna", w.file("one\n")))
		require.NoError(t, errors.Join(errs...))
		require.EqualValues(t, 2, s.calls.Load(), "the repeats see the first in the next transaction")
		require.Equal(t, []bool{false, true, false, false, true}, []bool{got[0].Duplicate, got[1].Duplicate, got[2].Duplicate, got[3].Duplicate, got[4].Duplicate})
		require.Equal(t, got[0].Task, got[1].Task)
		require.Equal(t, got[0].Document, got[4].Document)
		require.NotEqual(t, got[0].Document.ID, got[2].Document.ID, "another user's is another document")
		w.likeRows(got[0], got[2], got[3])
		require.Equal(t, 3, w.Number(`SELECT COUNT(*) FROM knowledge_document`))
		require.Len(t, w.Stored(), 3, "copies of duplicates are not kept")
	})
}

func TestTheSameBytesForTwoBasesInOneBatch(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		other, err := w.App.CreateBase(t.Context(), w.Caller, "other", ingest.BaseSettings{})
		require.NoError(t, err)
		s := w.counted()
		a, b, c := w.file("one\n"), w.file("one\n"), w.file("two\n")
		b.Base, c.Base = "other", other.ID
		got, errs := w.together(w.of("anna", a), w.of("anna", b), w.of("anna", c))
		require.NoError(t, errors.Join(errs...))
		require.EqualValues(t, 1, s.calls.Load())
		require.NotEqual(t, got[0].Document.ID, got[1].Document.ID)
		require.Equal(t, got[0].Task.FilePath, got[1].Task.FilePath, "both versions link one file")
		require.Equal(t, []string{"default", "other", "other"}, []string{got[0].Document.BaseName, got[1].Document.BaseName, got[2].Document.BaseName})
		w.likeRows(got...)
		require.Len(t, w.Stored(), 2)
	})
}

func TestTheSameKeyInOneBatch(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		keyed := func(text string) ingest.Upload {
			u := w.file(text)
			u.IdempotencyKey = "k"
			return u
		}
		got, errs := w.together(w.of("anna", keyed("one\n")), w.of("anna", keyed("one\n")), w.of("anna", keyed("other\n")), w.of("bob", keyed("other\n")))
		require.ErrorIs(t, errs[2], ingest.ErrKeyReused)
		errs[2] = nil
		require.NoError(t, errors.Join(errs...))
		require.False(t, got[0].Replayed)
		require.True(t, got[1].Replayed)
		require.Equal(t, got[0].Task, got[1].Task)
		require.Equal(t, got[0].Document, got[1].Document)
		require.NotEqual(t, got[0].Task.ID, got[3].Task.ID)
		w.likeRows(got[0], got[3])
		require.Equal(t, 2, w.Number(`SELECT COUNT(*) FROM ingest_task`))
		require.Len(t, w.Stored(), 3, "the refused one's file is its caller's to discard")
	})
}

func TestABadUploadInABatchFailsAlone(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first, second := w.Upload("first\n"), w.Upload("second\n")
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, second.Document.ID))
		s := w.counted()
		bad := map[string]*upload.Accepting{"base": w.of("anna", w.file("a\n")), "unknown": w.of("anna", w.file("b\n")), "foreign": w.of("bob", w.file("c\n")),
			"tombstone": w.of("anna", w.file("d\n")), "changed": w.of("anna", w.file("e\n"))}
		bad["base"].U().Base = "missing"
		bad["unknown"].U().DocumentID, bad["foreign"].U().DocumentID, bad["tombstone"].U().DocumentID = ingest.NewID(), first.Document.ID, second.Document.ID
		bad["changed"].U().DocumentID, bad["changed"].C().Guard = first.Document.ID, func(any) error { return ingest.ErrChanged }
		want := map[string]error{"base": ingest.ErrBaseNotFound, "unknown": ingest.ErrDocumentNotFound, "foreign": ingest.ErrDocumentNotFound, "tombstone": ingest.ErrDocumentNotFound, "changed": ingest.ErrChanged}
		items := []*upload.Accepting{w.of("anna", w.file("good\n"))}
		names := []string{""}
		for name, x := range bad {
			items, names = append(items, x), append(names, name)
		}
		items = append(items, w.of("bob", w.file("good\n")))
		got, errs := w.together(items...)
		for i, name := range names {
			require.ErrorIs(t, errs[i], want[name], name)
		}
		require.NoError(t, errs[len(errs)-1])
		require.EqualValues(t, 1, s.calls.Load(), "what the rules refuse costs the others nothing")
		w.likeRows(got[0], got[len(got)-1])
		require.Equal(t, 4, w.Number(`SELECT COUNT(*) FROM ingest_task`))
	})
}

func TestAnUploadThatTheDatabaseRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		bad, worse := w.of("anna", w.file("bad\n")), w.of("anna", w.file("worse\n"))
		bad.C().Channel = strings.Repeat("c", 33)             // the store refuses it
		worse.U().File.MediaType = strings.Repeat("m", 1000)  // the server refuses it, except SQLite
		panics := w.of("anna", w.file("good\n"))              // its condition is broken
		panics.C().Guard = func(any) error { panic("guard") } // it is asked for documents that get a new version
		renewed := w.Upload("renewed\n")
		panics.U().DocumentID = renewed.Document.ID
		var got []ingest.Accepted
		var errs []error
		func() {
			defer func() {
				err, ok := recover().(error)
				require.True(t, ok)
				require.ErrorContains(t, err, "guard")
			}()
			w.together(w.of("anna", w.file("one\n")), panics, w.of("anna", w.file("two\n")))
		}()
		require.Equal(t, 3, w.Number(`SELECT COUNT(*) FROM ingest_task`), "the others of the batch")
		got, errs = w.together(w.of("anna", w.file("three\n")), bad, worse, w.of("anna", w.file("four\n")))
		require.ErrorContains(t, errs[1], "channel")
		if w.Server {
			require.Error(t, errs[2])
		}
		require.NoError(t, errors.Join(errs[0], errs[3]))
		w.likeRows(got[0], got[3])
	})
}

func TestNewVersionsInOneBatch(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a, b := w.Upload("a\n"), w.Upload("b\n")
		w.Process(a.Task.ID)
		version := func(document, text string) *upload.Accepting {
			u := w.file(text)
			u.DocumentID = document
			return w.of("anna", u)
		}
		forced := w.file("a\n")
		forced.Force = true
		s := w.counted()
		got, errs := w.together(
			version(a.Document.ID, "second\n"), version(b.Document.ID, "other\n"), version(a.Document.ID, "third\n"),
			w.of("anna", w.file("second\n")), w.of("anna", forced))
		require.NoError(t, errors.Join(errs...))
		// First: second and other. Then third, while the upload of what second holds no more and the forced one, whose document
		// has gone on, are new documents.
		require.EqualValues(t, 2, s.calls.Load())
		require.Equal(t, a.Document.ID, got[0].Document.ID)
		require.Equal(t, ingest.DocumentReady, got[0].Document.Status, "the old version stays visible")
		require.Equal(t, ingest.DocumentQueued, got[1].Document.Status)
		require.Equal(t, a.Document.ID, got[2].Document.ID)
		d := w.Document(a.Document.ID)
		require.EqualValues(t, 3, d.LastNo)
		require.EqualValues(t, 3, d.LastUpload)
		require.Equal(t, got[2].Task.ID, d.LatestTask, "in the order of arrival")
		w.likeRows(got[1], got[2])
		require.Equal(t, taskstate.StatusSucceeded, w.Process(got[2].Task.ID).Status)
		require.Equal(t, []string{"third"}, w.Text(a.Document.ID))
		w.CheckInvariants()
	})
}

func TestAFullBacklogRefusesOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{Config: func(c *ingest.Config) { c.MaxBacklog = 1 }})
	first := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), IdempotencyKey: "k"})
	replay := w.file("one\n")
	replay.IdempotencyKey = "k"
	got, errs := w.together(w.of("anna", w.file("one\n")), w.of("anna", w.file("two\n")), w.of("anna", replay), w.of("bob", w.file("one\n")))
	require.ErrorIs(t, errs[1], ingest.ErrBacklogFull)
	require.ErrorIs(t, errs[3], ingest.ErrBacklogFull)
	require.NoError(t, errors.Join(errs[0], errs[2]))
	require.True(t, got[0].Duplicate)
	require.True(t, got[2].Replayed)
	require.Equal(t, first.Task.ID, got[2].Task.ID)
	require.Equal(t, 1, w.Number(`SELECT COUNT(*) FROM knowledge_base`), "no base for who was refused")
}

// TestWhoGoesHarmsNoOtherUpload lets one caller go while its transaction is open.
func TestWhoGoesHarmsNoOtherUpload(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		s := w.counted()
		ctx, cancel := context.WithCancel(t.Context())
		begun, release, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s.before = func(_ context.Context, n int64) error {
			if n == 1 { // what comes meanwhile is the next batch
				close(begun)
				<-release
				return nil
			}
			cancel()
			<-left
			return nil
		}
		first, goes, stays := w.file("first\n"), w.file("goes\n"), w.file("stays\n")
		var all sync.WaitGroup
		all.Go(func() {
			_, err := w.App.Accept(t.Context(), w.Caller, first)
			require.NoError(t, err)
		})
		<-begun
		all.Go(func() {
			defer close(left)
			_, err := w.App.Accept(ctx, w.Caller, goes)
			require.ErrorIs(t, err, context.Canceled)
			w.App.Discard(goes.File)
		})
		var got ingest.Accepted
		all.Go(func() {
			var err error
			got, err = w.App.Accept(t.Context(), w.Caller, stays)
			require.NoError(t, err)
		})
		close(release)
		all.Wait()
		w.likeRows(got)
		require.Len(t, w.Stored(), 3, "nobody knows whether a row names the file of who went")
	})
}

// TestALockedBaseHoldsUpItsOwnUploadsOnly lets somebody hold one user's base, as its deletion does, while others upload.
func TestALockedBaseHoldsUpItsOwnUploadsOnly(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		if !w.Server {
			return // SQLite has one writer: everybody waits for it
		}
		hers := w.Upload("one\n")
		locked, release := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
				_, err := sqldb.Texts(ctx, tx, w.App.Catalog.Queries().Get("BaseLock"), hers.Document.BaseID)
				close(locked)
				<-release
				return err
			}))
		})
		<-locked
		var released atomic.Bool
		two := w.file("two\n")
		all.Go(func() {
			_, err := w.App.Accept(t.Context(), w.Caller, two)
			require.NoError(t, err)
			require.True(t, released.Load(), "the base was held")
		})
		bob := w.Caller
		bob.Scope.UserID = "bob"
		for i := range 3 {
			_, err := w.App.Accept(t.Context(), bob, w.file(fmt.Sprintf("bob's %d\n", i)))
			require.NoError(t, err)
		}
		released.Store(true)
		close(release)
		all.Wait()
	})
}
