package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/millweir/millweir/proto"

	"github.com/millweir/millweir/pkg/taskstate"
)

// awayStore is a Store whose database is away, or read-only, or does not answer a COMMIT.
type awayStore struct {
	taskstate.Store
	away, readOnly, lost, lostBefore atomic.Bool
}

func (s *awayStore) Moment(ctx context.Context) (taskstate.DBClock, error) {
	if s.away.Load() {
		return taskstate.DBClock{}, fmt.Errorf("ping: %w", taskstate.ErrUnavailable)
	}
	return s.Store.Moment(ctx)
}

func (s *awayStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	if s.away.Load() || s.readOnly.Load() {
		return fmt.Errorf("begin: %w", taskstate.ErrUnavailable)
	}
	return s.Store.InTx(ctx, f)
}

func (s *awayStore) Submit(ctx context.Context, p taskstate.PrepareFunc) ([]taskstate.Task, error) {
	switch {
	case s.away.Load() || s.readOnly.Load():
		return nil, fmt.Errorf("insert: %w", taskstate.ErrUnavailable)
	case s.lostBefore.Load():
		return nil, fmt.Errorf("commit: %w", taskstate.ErrOutcomeUnknown)
	}
	out, err := s.Store.Submit(ctx, p)
	if s.lost.Load() {
		return nil, errors.Join(err, fmt.Errorf("commit: %w", taskstate.ErrOutcomeUnknown))
	}
	return out, err
}

// newAwayWorld is a world over an awayStore.
func newAwayWorld(t *testing.T, deps ...func(*Deps)) (*world, *awayStore) {
	store := &awayStore{}
	w := newWorld(t, worldOptions{deps: func(d *Deps) {
		store.Store, d.Store = d.Store, store
		for _, f := range deps {
			f(d)
		}
	}})
	return w, store
}

// refusedUpload is an upload that is received and then not accepted.
func (w *world) refusedUpload(text string) ReceivedFile {
	w.t.Helper()
	f := w.receive("a.txt", text)
	_, err := w.app.Accept(w.t.Context(), w.caller, Upload{File: f})
	require.Error(w.t, err)
	w.app.Discard(f)
	return f
}

func TestARefusedUploadLeavesNoFile(t *testing.T) {
	t.Parallel()
	w, store := newAwayWorld(t)
	f := w.receive("a.txt", "one\n")
	store.away.Store(true)
	_, err := w.app.Accept(t.Context(), w.caller, Upload{File: f})
	require.ErrorIs(t, err, taskstate.ErrUnavailable)
	w.app.Discard(f)
	require.Empty(t, w.stored())
}

// Only a COMMIT without an answer keeps the file, until its row was looked for.
func TestAFileOfUnknownOutcomeIsSettledMinutesLater(t *testing.T) {
	t.Parallel()
	w, store := newAwayWorld(t)
	resolve := func() {
		err := w.app.resolveUnknown(t.Context())
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
	require.ElementsMatch(t, both, w.stored())

	resolve() // too young
	w.clock.advance(2 * time.Minute)
	store.away.Store(true)
	resolve()
	require.ElementsMatch(t, both, w.stored(), "nothing is removed while the database is away")
	store.away.Store(false)
	resolve() // it answers since now
	require.ElementsMatch(t, both, w.stored())
	w.clock.advance(2 * time.Minute)
	resolve()
	require.Equal(t, []string{committed.ID}, w.stored())
	require.Empty(t, w.app.unknown.since)
	require.Equal(t, 1, w.number("SELECT COUNT(*) FROM stored_file"))
}

func TestTooManyUnknownOutcomesKeepEveryFile(t *testing.T) {
	t.Parallel()
	w, _ := newAwayWorld(t)
	f := w.receive("a.txt", "one\n")
	for range unknownKept + 1 {
		w.app.keepUnknown(newID())
	}
	w.app.Discard(f)
	require.Equal(t, []string{f.ID}, w.stored())
	w.clock.advance(2 * time.Minute)
	require.NoError(t, w.app.resolveUnknown(t.Context()))
	w.clock.advance(2 * time.Minute)
	require.NoError(t, w.app.resolveUnknown(t.Context()))
	w.app.Discard(f)
	require.Empty(t, w.stored())
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
			w.upload("one\n")
			fault(store).Store(true)
			w.refusedUpload("two\n") // nobody knew
			body := &unread{}
			for range 5 {
				_, err := w.app.Receive(t.Context(), body, "a.txt")
				require.ErrorIs(t, err, taskstate.ErrUnavailable)
				w.clock.advance(time.Second)
			}
			require.Zero(t, body.n)
			require.Len(t, w.stored(), 1)
			fault(store).Store(false)
			w.clock.advance(time.Second)
			w.upload("three\n")
		})
	}
}

// hangingPublisher does not answer while it hangs.
type hangingPublisher struct {
	hangs atomic.Bool
	calls atomic.Int64
	added chan int
}

func (p *hangingPublisher) Publish(ctx context.Context, e []*pb.TaskEnvelope) ([]string, error) {
	p.calls.Add(1)
	if p.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.added <- len(e)
	return make([]string, len(e)), nil
}

// One upload waits for a queue that does not answer; the next ones leave it alone until the loop beside them finds it back.
func TestASilentQueueIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	p := &hangingPublisher{added: make(chan int, 100)}
	store := worldOptions{deps: func(d *Deps) { d.Publisher = p }, config: func(c *Config) { c.PublishTimeout = time.Millisecond }}
	w := newWorld(t, store)
	w.upload("0\n")
	require.Equal(t, 1, <-p.added)
	p.hangs.Store(true)
	for i := range 50 {
		w.upload(strings.Repeat("x", i+1))
	}
	require.EqualValues(t, 2, p.calls.Load(), "the first of them, and no other")

	// Deliveries are taken up by the receiver's loop. Its first success gives the queue back to the requests.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.app.RunReceiver(ctx) }()
	require.Eventually(t, func() bool { return p.calls.Load() == 3 }, time.Minute, time.Millisecond)
	p.hangs.Store(false)
	w.upload("again\n")
	require.Equal(t, 1, <-p.added)
	require.Eventually(t, func() bool { return !w.app.quiet.leave(w.clock.Now(), nil) }, time.Minute, time.Millisecond)
	before := p.calls.Load()
	w.upload("and again\n")
	require.Equal(t, before+1, p.calls.Load(), "in the request")
	cancel()
	require.NoError(t, <-done)

	// Without that loop a request tries again after a while.
	p.hangs.Store(true)
	w.upload("silent\n")
	w.upload("left alone\n")
	require.Equal(t, before+2, p.calls.Load())
	w.clock.advance(quietRest)
	w.upload("tries\n")
	require.Equal(t, before+3, p.calls.Load())
}
