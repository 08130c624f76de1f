package upload_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/upload"
	"github.com/millweir/millweir/pkg/taskstate"
)

// awayStore is a Store whose database is away, or read-only, or does not answer a COMMIT.
type awayStore struct {
	taskstate.Database
	away, readOnly, lost, lostBefore atomic.Bool
}

func (s *awayStore) Moment(ctx context.Context) (taskstate.DBClock, error) {
	if s.away.Load() {
		return taskstate.DBClock{}, fmt.Errorf("ping: %w", taskstate.ErrUnavailable)
	}
	return s.Database.Moment(ctx)
}

func (s *awayStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	if s.away.Load() || s.readOnly.Load() {
		return fmt.Errorf("begin: %w", taskstate.ErrUnavailable)
	}
	return s.Database.InTx(ctx, f)
}

func (s *awayStore) Submit(ctx context.Context, p taskstate.PrepareFunc) ([]taskstate.Task, error) {
	switch {
	case s.away.Load() || s.readOnly.Load():
		return nil, fmt.Errorf("insert: %w", taskstate.ErrUnavailable)
	case s.lostBefore.Load():
		return nil, fmt.Errorf("commit: %w", taskstate.ErrOutcomeUnknown)
	}
	out, err := s.Database.Submit(ctx, p)
	if s.lost.Load() {
		return nil, errors.Join(err, fmt.Errorf("commit: %w", taskstate.ErrOutcomeUnknown))
	}
	return out, err
}

// newAwayWorld is a world over an awayStore.
func newAwayWorld(t *testing.T, deps ...func(*ingest.Deps)) (*world, *awayStore) {
	store := &awayStore{}
	w := newWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) {
		store.Database, d.Store = d.Store, store
		for _, f := range deps {
			f(d)
		}
	}})
	return w, store
}

// refusedUpload is an upload that is received and then not accepted.
func (w *world) refusedUpload(text string) ingest.ReceivedFile {
	w.T.Helper()
	f := w.Receive("a.txt", text)
	_, err := w.App.Accept(w.T.Context(), w.Caller, ingest.Upload{File: f})
	require.Error(w.T, err)
	w.App.Discard(f)
	return f
}

func TestARefusedUploadLeavesNoFile(t *testing.T) {
	t.Parallel()
	w, store := newAwayWorld(t)
	f := w.Receive("a.txt", "one\n")
	store.away.Store(true)
	_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: f})
	require.ErrorIs(t, err, taskstate.ErrUnavailable)
	w.App.Discard(f)
	require.Empty(t, w.Stored())
}

// Only a COMMIT without an answer keeps the file, until its row was looked for.
func TestAFileOfUnknownOutcomeIsSettledMinutesLater(t *testing.T) {
	t.Parallel()
	w, store := newAwayWorld(t)
	resolve := func() {
		err := w.App.ResolveUnknown(t.Context())
		if store.away.Load() {
			require.ErrorIs(t, err, taskstate.ErrUnavailable)
			return
		}
		require.NoError(t, err)
	}
	store.lost.Store(true)
	committed := w.refusedUpload("one\n")
	store.lost.Store(false)
	store.lostBefore.Store(true)
	lost := w.refusedUpload("two\n")
	store.lostBefore.Store(false)
	both := []string{committed.ID, lost.ID}
	require.ElementsMatch(t, both, w.Stored())

	resolve() // too young
	w.Clock.Advance(2 * time.Minute)
	store.away.Store(true)
	resolve()
	require.ElementsMatch(t, both, w.Stored(), "nothing is removed while the database is away")
	store.away.Store(false)
	resolve() // it answers since now
	require.ElementsMatch(t, both, w.Stored())
	w.Clock.Advance(2 * time.Minute)
	resolve()
	require.Equal(t, []string{committed.ID}, w.Stored())
	require.Zero(t, w.App.Unknowns())
	require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM stored_file"))
}

func TestTooManyUnknownOutcomesKeepEveryFile(t *testing.T) {
	t.Parallel()
	w, _ := newAwayWorld(t)
	f := w.Receive("a.txt", "one\n")
	for range upload.UnknownKept + 1 {
		w.App.KeepUnknown(ingest.NewID())
	}
	w.App.Discard(f)
	require.Equal(t, []string{f.ID}, w.Stored())
	w.Clock.Advance(2 * time.Minute)
	require.NoError(t, w.App.ResolveUnknown(t.Context()))
	w.Clock.Advance(2 * time.Minute)
	require.NoError(t, w.App.ResolveUnknown(t.Context()))
	w.App.Discard(f)
	require.Empty(t, w.Stored())
}

// unread is a body that must not be read.
type unread struct{ n int }

func (u *unread) Read([]byte) (int, error) {
	u.n++
	return 0, errors.New("the body was read")
}

func TestNothingIsReceivedWhileTheDatabaseIsKnownToBeAway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*awayStore) *atomic.Bool{
		"away":      func(s *awayStore) *atomic.Bool { return &s.away },
		"read-only": func(s *awayStore) *atomic.Bool { return &s.readOnly },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, store := newAwayWorld(t)
			w.Upload("one\n")
			fault(store).Store(true)
			w.refusedUpload("two\n") // nobody knew
			body := &unread{}
			for range 5 {
				_, err := w.App.Receive(t.Context(), body, "a.txt")
				require.ErrorIs(t, err, taskstate.ErrUnavailable)
				w.Clock.Advance(time.Second)
			}
			require.Zero(t, body.n)
			require.Len(t, w.Stored(), 1)
			fault(store).Store(false)
			w.Clock.Advance(time.Second)
			w.Upload("three\n")
		})
	}
}
