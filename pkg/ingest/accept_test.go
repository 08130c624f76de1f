package ingest

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

	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

func TestSameBytesAreADuplicate(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.upload("one\ntwo\n")
		again := w.upload("one\ntwo\n")
		require.True(t, again.Duplicate)
		require.Equal(t, first.Task.ID, again.Task.ID)
		require.Equal(t, first.Document.ID, again.Document.ID)
		require.Len(t, w.stored(), 1, "the second copy is not kept")

		w.process(first.Task.ID)
		require.True(t, w.upload("one\ntwo\n").Duplicate)
	})
}

func TestUnknownBaseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	f := w.receive("a.txt", "x")
	_, err := w.app.Accept(t.Context(), w.caller, Upload{File: f, Base: "missing"})
	require.ErrorIs(t, err, ErrBaseNotFound)
	w.app.Discard(f)
	require.Empty(t, w.stored())
}

func TestSameBytesAfterDeathMakeANewTask(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.upload("!corrupt\n")
		require.Equal(t, taskstate.StatusDead, w.process(first.Task.ID).Status)
		require.Equal(t, DocumentFailed, w.document(first.Document.ID).Status)
		again := w.upload("!corrupt\n")
		require.False(t, again.Duplicate)
		require.NotEqual(t, first.Task.ID, again.Task.ID)
		require.Equal(t, first.Document.ID, again.Document.ID)
		require.Equal(t, DocumentQueued, again.Document.Status)
	})
}

func TestForceTakesTheSameBytesInAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	first := w.upload("one\n")
	w.process(first.Task.ID)
	again := w.accept(Upload{File: w.receive("a.txt", "one\n"), Force: true})
	require.False(t, again.Duplicate)
	require.Equal(t, first.Document.ID, again.Document.ID)
	require.Equal(t, DocumentReady, again.Document.Status)
	require.Equal(t, taskstate.StatusSucceeded, w.process(again.Task.ID).Status)
	require.EqualValues(t, 2, w.document(first.Document.ID).VisibleNo)
	require.Equal(t, 1, w.embed.paid["one"], "nothing is paid again")
	require.Equal(t, 1, w.vectorCount(), "the vector is used again")
	require.Len(t, w.stored(), 1, "both versions link one file")
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.accept(Upload{File: w.receive("a.txt", "one\n"), IdempotencyKey: "k"})
		again := w.accept(Upload{File: w.receive("a.txt", "one\n"), IdempotencyKey: "k"})
		require.True(t, again.Replayed)
		require.Equal(t, first.Task.ID, again.Task.ID)
		require.Equal(t, first.Document.ID, again.Document.ID)

		f := w.receive("a.txt", "other\n")
		_, err := w.app.Accept(t.Context(), w.caller, Upload{File: f, IdempotencyKey: "k"})
		require.ErrorIs(t, err, ErrKeyReused)
		w.app.Discard(f)

		bob := w.caller
		bob.Scope.UserID = "bob"
		f = w.receive("a.txt", "other\n")
		theirs, err := w.app.Accept(t.Context(), bob, Upload{File: f, IdempotencyKey: "k"})
		require.NoError(t, err)
		require.NotEqual(t, first.Task.ID, theirs.Task.ID, "keys belong to users")
		require.Len(t, w.stored(), 2)
	})
}

func TestIdenticalUploadsRace(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		const n = 8
		got := make([]Accepted, n)
		errs := make([]error, n)
		var files []ReceivedFile
		for i := range n {
			files = append(files, w.receive(fmt.Sprintf("%d.txt", i), "the same\n"))
		}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { got[i], errs[i] = w.app.Accept(t.Context(), w.caller, Upload{File: files[i]}) })
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
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM knowledge_base"))
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM knowledge_document"))
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM stored_file"))
		require.Len(t, w.stored(), 1)
	})
}

func TestNewVersionOfADocument(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.accept(Upload{File: w.receive("a.txt", "one\ntwo\n"), Title: "Given"})
		w.process(a.Task.ID)
		b := w.accept(Upload{File: w.receive("b.txt", "# Found\ntwo\nthree\n"), DocumentID: a.Document.ID})
		require.Equal(t, DocumentReady, b.Document.Status, "the old version stays visible")
		require.Equal(t, []string{"one", "two"}, w.text(a.Document.ID))
		require.Equal(t, taskstate.StatusSucceeded, w.process(b.Task.ID).Status)
		require.Equal(t, []string{"two", "three"}, w.text(a.Document.ID))
		d := w.document(a.Document.ID)
		require.Equal(t, "Given", d.Title, "a title that the user gave is kept")
		require.Equal(t, "b.txt", d.FileName)
		w.checkInvariants()
		w.sweepAll()
		w.checkInvariants()
		require.Equal(t, 2, w.vectorCount())
		require.Equal(t, 2, w.number("SELECT COUNT(*) FROM knowledge_segment"))
		require.Len(t, w.stored(), 1, "the file of the old version went")
	})
}

func TestNewVersionOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	bob := w.caller
	bob.Scope.UserID = "bob"
	for name, c := range map[string]struct {
		caller Caller
		id     string
	}{"unknown": {w.caller, newID()}, "foreign": {bob, a.Document.ID}} {
		_, err := w.app.Accept(t.Context(), c.caller, Upload{File: w.receive("a.txt", name), DocumentID: c.id})
		require.ErrorIs(t, err, ErrDocumentNotFound, name)
	}
	require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
	_, err := w.app.Accept(t.Context(), w.caller, Upload{File: w.receive("a.txt", "z"), DocumentID: a.Document.ID})
	require.ErrorIs(t, err, ErrDocumentNotFound, "tombstone")
}

func TestTwoDocumentsMayEndWithTheSameBytes(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a, b := w.upload("one\n"), w.upload("two\n")
		again := w.accept(Upload{File: w.receive("a.txt", "one\n"), DocumentID: b.Document.ID})
		require.Equal(t, b.Document.ID, again.Document.ID)
		require.Equal(t, a.Document.ID, w.upload("one\n").Document.ID, "the first holder is found")
		fresh := w.upload("two\n")
		require.NotEqual(t, b.Document.ID, fresh.Document.ID, "b holds other bytes now")
	})
}

func TestBacklogLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{config: func(c *Config) { c.MaxBacklog = 2 }})
	w.upload("one\n")
	w.upload("two\n")
	_, err := w.app.Accept(t.Context(), w.caller, Upload{File: w.receive("c.txt", "three\n")})
	require.ErrorIs(t, err, ErrBacklogFull)
	var wait interface{ RetryAfter() time.Duration }
	require.ErrorAs(t, err, &wait)
	require.GreaterOrEqual(t, wait.RetryAfter(), backlogLeast)
	require.LessOrEqual(t, wait.RetryAfter(), backlogMost)
	require.True(t, w.upload("one\n").Duplicate, "a duplicate adds nothing to the backlog")
}

func TestBadTitlesAndNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	f := w.receive("a.txt", "x\n")
	for _, title := range []string{strings.Repeat("t", 10_000), "\xff", "a\x00b"} {
		_, err := w.app.Accept(t.Context(), w.caller, Upload{File: f, Title: title})
		require.ErrorIs(t, err, ErrBadTitle)
	}
	for _, base := range []string{" ", "a\x00", "\xff", strings.Repeat("b", 191)} {
		_, err := w.app.Accept(t.Context(), w.caller, Upload{File: f, Base: base})
		require.ErrorIs(t, err, ErrBadBaseName)
	}
	require.Equal(t, 0, w.number("SELECT COUNT(*) FROM ingest_task"))
	got := w.accept(Upload{File: f, Title: strings.Repeat("題", maxTitleChars)})
	require.Len(t, []rune(got.Document.Title), maxTitleChars)
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
	w := newWorld(t, worldOptions{deps: func(d *Deps) {
		d.Publisher, d.Changed = p, func(ids ...string) { changed = append(changed, ids...) }
	}})
	a := w.upload("one\n")
	require.Equal(t, taskstate.StatusQueued, a.Task.Status, "the row is the promise")
	require.Len(t, p.got, 1)
	require.Equal(t, a.Task.ID, p.got[0].GetTaskId())
	require.Equal(t, []string{a.Task.ID}, changed)
}

func TestUnknownCommitKeepsTheFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	f := &faults{at: 1, mode: errorAfter}
	w.build(worldOptions{deps: func(d *Deps) { d.Store = faultyStore{w.store, f} }})
	file := w.receive("a.txt", "one\n")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	f.mode, f.hook = interrupted, func() { cancel(); <-left }
	_, err := w.app.Accept(ctx, w.caller, Upload{File: file})
	close(left)
	require.Error(t, err)
	w.app.Discard(file)
	require.Len(t, w.stored(), 1, "its commit may have happened")

	w.app.Discard(w.receive("b.txt", "two\n"))
	require.Len(t, w.stored(), 1, "an upload that was not accepted goes")
	require.NoError(t, os.Chtimes(w.dir+"/"+file.ID, w.clock.Now().Add(-25*60*60*1e9), w.clock.Now().Add(-25*60*60*1e9)))
	n, err := w.app.SweepFiles(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "no row names it")
}

func TestFullBacklogTellsAWaitThatFitsItsPace(t *testing.T) {
	t.Parallel()
	for oldest, want := range map[time.Duration]time.Duration{
		0:                backlogUnknown,
		time.Second:      backlogLeast,
		10 * time.Minute: time.Minute,
		24 * time.Hour:   backlogMost,
	} {
		g := backlogGauge{waiting: 1000, oldest: oldest}
		require.Equal(t, want, g.wait(), "the oldest waits %s", oldest)
	}
}
