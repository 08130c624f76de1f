package upload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

func TestSameBytesAreADuplicate(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.Upload("one\ntwo\n")
		again := w.Upload("one\ntwo\n")
		require.True(t, again.Duplicate)
		require.Equal(t, first.Task.ID, again.Task.ID)
		require.Equal(t, first.Document.ID, again.Document.ID)
		require.Len(t, w.Stored(), 1, "the second copy is not kept")

		w.Process(first.Task.ID)
		require.True(t, w.Upload("one\ntwo\n").Duplicate)
	})
}

func TestUnknownBaseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	f := w.Receive("a.txt", "x")
	_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: f, Base: "missing"})
	require.ErrorIs(t, err, ingest.ErrBaseNotFound)
	w.App.Discard(f)
	require.Empty(t, w.Stored())
}

func TestSameBytesAfterDeathMakeANewTask(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.Upload("!corrupt\n")
		require.Equal(t, taskstate.StatusDead, w.Process(first.Task.ID).Status)
		require.Equal(t, ingest.DocumentFailed, w.Document(first.Document.ID).Status)
		again := w.Upload("!corrupt\n")
		require.False(t, again.Duplicate)
		require.NotEqual(t, first.Task.ID, again.Task.ID)
		require.Equal(t, first.Document.ID, again.Document.ID)
		require.Equal(t, ingest.DocumentQueued, again.Document.Status)
	})
}

func TestForceTakesTheSameBytesInAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	first := w.Upload("one\n")
	w.Process(first.Task.ID)
	again := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), Force: true})
	require.False(t, again.Duplicate)
	require.Equal(t, first.Document.ID, again.Document.ID)
	require.Equal(t, ingest.DocumentReady, again.Document.Status)
	require.Equal(t, taskstate.StatusSucceeded, w.Process(again.Task.ID).Status)
	require.EqualValues(t, 2, w.Document(first.Document.ID).VisibleNo)
	require.Equal(t, 1, w.Embed.Paid["one"], "nothing is paid again")
	require.Equal(t, 1, w.VectorCount(), "the vector is used again")
	require.Len(t, w.Stored(), 1, "both versions link one file")
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), IdempotencyKey: "k"})
		again := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), IdempotencyKey: "k"})
		require.True(t, again.Replayed)
		require.Equal(t, first.Task.ID, again.Task.ID)
		require.Equal(t, first.Document.ID, again.Document.ID)

		f := w.Receive("a.txt", "other\n")
		_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: f, IdempotencyKey: "k"})
		require.ErrorIs(t, err, ingest.ErrKeyReused)
		w.App.Discard(f)

		bob := w.Caller
		bob.Scope.UserID = "bob"
		f = w.Receive("a.txt", "other\n")
		theirs, err := w.App.Accept(t.Context(), bob, ingest.Upload{File: f, IdempotencyKey: "k"})
		require.NoError(t, err)
		require.NotEqual(t, first.Task.ID, theirs.Task.ID, "keys belong to users")
		require.Len(t, w.Stored(), 2)
	})
}

// An upload whose request did not claim its key is refused while another request holds it, and only then.
func TestKeysOfOtherRequestsAreLookedFor(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		accept := func(c ingest.Caller, text, key string) (ingest.Accepted, error) {
			f := w.Receive("a.txt", text)
			got, err := w.App.Accept(t.Context(), c, ingest.Upload{File: f, IdempotencyKey: key + "/1", Unclaimed: key})
			if err != nil {
				w.App.Discard(f)
			}
			return got, err
		}
		old, err := accept(w.Caller, "old", "old")
		require.NoError(t, err)
		for _, key := range []string{"k", "old", "dead"} {
			release, err := w.App.BeginKey(t.Context(), w.Caller, key)
			require.NoError(t, err)
			defer release()
		}
		_, err = accept(w.Caller, "one", "k")
		require.ErrorIs(t, err, ingest.ErrKeyInUse)
		_, err = accept(w.Caller, "one", "K")
		require.NoError(t, err, "another key")
		bob := w.Caller
		bob.Scope.UserID = "bob"
		_, err = accept(bob, "one", "k")
		require.NoError(t, err, "keys belong to users")
		again, err := accept(w.Caller, "old", "old")
		require.NoError(t, err, "there is a task, whoever sends its key again")
		require.Equal(t, old.Task.ID, again.Task.ID)
		require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE upload_request SET expires_at = ? WHERE request_key = ?", m.Now, ingest.RequestKey("dead"))
			return err
		}))
		_, err = accept(w.Caller, "two", "dead")
		require.NoError(t, err, "its holder's lease is over")
		require.Len(t, w.Stored(), 4)
	})
}

func TestIdenticalUploadsRace(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		const n = 8
		got := make([]ingest.Accepted, n)
		errs := make([]error, n)
		var files []ingest.ReceivedFile
		for i := range n {
			files = append(files, w.Receive(fmt.Sprintf("%d.txt", i), "the same\n"))
		}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { got[i], errs[i] = w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: files[i]}) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		fresh := 0
		for _, a := range got {
			require.Equal(t, got[0].Task.ID, a.Task.ID)
			if !a.Duplicate {
				fresh++
			}
		}
		require.Equal(t, 1, fresh)
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_base"))
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_document"))
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM stored_file"))
		require.Len(t, w.Stored(), 1)
	})
}

func TestNewVersionOfADocument(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\ntwo\n"), Title: "Given"})
		w.Process(a.Task.ID)
		b := w.Accept(ingest.Upload{File: w.Receive("b.txt", "# Found\ntwo\nthree\n"), DocumentID: a.Document.ID})
		require.Equal(t, ingest.DocumentReady, b.Document.Status, "the old version stays visible")
		require.Equal(t, []string{"one", "two"}, w.Text(a.Document.ID))
		require.Equal(t, taskstate.StatusSucceeded, w.Process(b.Task.ID).Status)
		require.Equal(t, []string{"two", "three"}, w.Text(a.Document.ID))
		d := w.Document(a.Document.ID)
		require.Equal(t, "Given", d.Title, "a title that the user gave is kept")
		require.Equal(t, "b.txt", d.FileName)
		w.CheckInvariants()
		w.SweepAll()
		w.CheckInvariants()
		require.Equal(t, 2, w.VectorCount())
		require.Equal(t, 2, w.Number("SELECT COUNT(*) FROM knowledge_segment"))
		require.Len(t, w.Stored(), 2, "the file of the old version is kept for a rollback")
	})
}

func TestNewVersionOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	bob := w.Caller
	bob.Scope.UserID = "bob"
	for name, c := range map[string]struct {
		caller ingest.Caller
		id     string
	}{"unknown": {w.Caller, ingest.NewID()}, "foreign": {bob, a.Document.ID}} {
		_, err := w.App.Accept(t.Context(), c.caller, ingest.Upload{File: w.Receive("a.txt", name), DocumentID: c.id})
		require.ErrorIs(t, err, ingest.ErrDocumentNotFound, name)
	}
	require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
	_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: w.Receive("a.txt", "z"), DocumentID: a.Document.ID})
	require.ErrorIs(t, err, ingest.ErrDocumentNotFound, "tombstone")
}

func TestTwoDocumentsMayEndWithTheSameBytes(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a, b := w.Upload("one\n"), w.Upload("two\n")
		again := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), DocumentID: b.Document.ID})
		require.Equal(t, b.Document.ID, again.Document.ID)
		require.Equal(t, a.Document.ID, w.Upload("one\n").Document.ID, "the first holder is found")
		fresh := w.Upload("two\n")
		require.NotEqual(t, b.Document.ID, fresh.Document.ID, "b holds other bytes now")
	})
}

func TestBacklogLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{Config: func(c *ingest.Config) { c.MaxBacklog = 2 }})
	w.Upload("one\n")
	w.Upload("two\n")
	_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: w.Receive("c.txt", "three\n")})
	require.ErrorIs(t, err, ingest.ErrBacklogFull)
	var wait interface{ RetryAfter() time.Duration }
	require.ErrorAs(t, err, &wait)
	require.GreaterOrEqual(t, wait.RetryAfter(), time.Second)
	require.LessOrEqual(t, wait.RetryAfter(), 5*time.Minute)
	require.True(t, w.Upload("one\n").Duplicate, "a duplicate adds nothing to the backlog")
}

func TestBadTitlesAndNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	f := w.Receive("a.txt", "x\n")
	for _, title := range []string{strings.Repeat("t", 10_000), "\xff", "a\x00b"} {
		_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: f, Title: title})
		var refused *ingest.TextError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "title", refused.Field)
		require.Equal(t, len(title) > ingest.MaxTitleChars, refused.Long, title)
	}
	for _, base := range []string{"a\x00", "a\nb", "\xff", strings.Repeat("b", 129)} {
		_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: f, Base: base})
		var refused *ingest.TextError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "knowledgeBase", refused.Field)
		require.Equal(t, len(base) > 128, refused.Long, base)
	}
	require.Equal(t, 0, w.Number("SELECT COUNT(*) FROM ingest_task"))
	got := w.Accept(ingest.Upload{File: f, Title: strings.Repeat("題", ingest.MaxTitleChars), Base: " "})
	require.Len(t, []rune(got.Document.Title), ingest.MaxTitleChars)
	require.Equal(t, ingest.DefaultBase, got.Document.BaseName, "white space is no name")
}

// refusingPublisher counts envelopes and refuses them.
type refusingPublisher struct{ got []*pb.TaskEnvelope }

func (p *refusingPublisher) Publish(_ context.Context, e []*pb.TaskEnvelope) ([]string, error) {
	p.got = append(p.got, e...)
	return nil, errors.New("no queue")
}

func TestAcceptWithoutAQueue(t *testing.T) {
	t.Parallel()
	p := &refusingPublisher{}
	var changed []string
	w := newWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) {
		d.Publisher, d.Changed = p, func(ids ...string) { changed = append(changed, ids...) }
	}})
	a := w.Upload("one\n")
	require.Equal(t, taskstate.StatusQueued, a.Task.Status, "the row is the promise")
	require.True(t, a.Waits)
	require.False(t, w.Upload("one\n").Waits, "a duplicate has no delivery")
	require.Len(t, p.got, 1)
	require.Equal(t, a.Task.ID, p.got[0].GetTaskId())
	require.Equal(t, []string{a.Task.ID}, changed)
}

func TestUnknownCommitKeepsTheFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	f := &ingesttest.Faults{At: 1, Mode: ingesttest.ErrorAfter}
	w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Store = ingesttest.FaultyStore{Database: w.Store, Faults: f} }})
	file := w.Receive("a.txt", "one\n")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	f.Mode, f.Hook = ingesttest.Interrupted, func() { cancel(); <-left }
	_, err := w.App.Accept(ctx, w.Caller, ingest.Upload{File: file})
	close(left)
	require.Error(t, err)
	w.App.Discard(file)
	require.Len(t, w.Stored(), 1, "its commit may have happened")

	w.App.Discard(w.Receive("b.txt", "two\n"))
	require.Len(t, w.Stored(), 1, "an upload that was not accepted goes")
	require.NoError(t, os.Chtimes(w.Dir+"/"+file.ID, w.Clock.Now().Add(-25*60*60*1e9), w.Clock.Now().Add(-25*60*60*1e9)))
	n, err := w.App.SweepFiles(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "no row names it")
}
