package ingesttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// SplitLines are the lines of a text.
func SplitLines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// Afflicted makes the world's application one whose n-th effect meets a fault; calm makes it whole again.
func (w *World) Afflicted(f *Faults) {
	w.Build(Options{
		Config: func(c *ingest.Config) { c.EmbedParallel, c.MaxAttempts = 1, 1000 },
		Deps: func(d *ingest.Deps) {
			d.Store, d.Vectors, d.Embedder = FaultyStore{w.Store, f}, faultyVectors{w.Vectors, f}, faultyEmbedder{w.Embed, f}
		},
	})
}

func (w *World) Calm() {
	w.Build(Options{Config: func(c *ingest.Config) { c.MaxAttempts = 1000 }})
}

// RunWith runs a task once in an application with a fault, up to its finish.
func (w *World) RunWith(id string, f *Faults) {
	w.T.Helper()
	job, answer := w.Claim(id)
	require.Equal(w.T, taskstate.AnswerClaimed, answer)
	w.Afflicted(f)
	kind := w.Handler
	w.Calm()
	res := kind.Handle(w.T.Context(), job)
	whole := w.Handler
	w.Handler = kind
	_ = f.effect(func() error { _, err := w.Finish(w.T.Context(), job, res); return err })
	w.Handler = whole
}

// Recover brings a task to its end as the recovery loop would, whatever state a fault left it in.
func (w *World) Recover(id string) taskstate.Task {
	w.T.Helper()
	for range 10 {
		task := w.Task(id)
		if task.Status.Terminal() {
			return task
		}
		w.Advance(time.Hour / 2)
		w.Process(id)
	}
	w.T.Fatalf("task %s does not end: %+v", id, w.Task(id))
	return taskstate.Task{}
}

// Every runs a test for each effect of a run, until there is no n-th one, and tells how many there were.
func Every(t *testing.T, mode FaultMode, one func(t *testing.T, n int, f *Faults)) {
	t.Helper()
	for n := 1; ; n++ {
		f := &Faults{At: n, Mode: mode}
		one(t, n, f)
		if t.Failed() {
			t.Fatalf("%s, effect %d", mode, n)
		}
		if !f.Hit {
			require.GreaterOrEqual(t, n, 6, "embed, ledger, rows, vectors, finish")
			return
		}
	}
}

// TwoVersions are texts that share lines, with repeats.
func TwoVersions(n int) (before, after string) {
	before = fmt.Sprintf("alpha %d\nbeta %d\ngamma %d\nalpha %d\n", n, n, n, n)
	after = fmt.Sprintf("alpha %d\ndelta %d\nalpha %d\nalpha %d\ngamma %d\nepsilon %d\n", n, n, n, n, n, n)
	return before, after
}

// FaultMode says what happens to the effect that is chosen.
type FaultMode string

const (
	ErrorBefore FaultMode = "error before" // the effect does not happen, its caller is told so
	ErrorAfter  FaultMode = "error after"  // it happens, its caller is told that it failed: an answer that was lost
	CrashBefore FaultMode = "crash before" // the process ends just before
	CrashAfter  FaultMode = "crash after"  // the process ends just after
	LostCommit  FaultMode = "lost commit"  // a holder's transaction is rolled back and taken for done
	Undone      FaultMode = "undone"       // a transaction's whole inside happens, and is rolled back instead of committed
	Interrupted FaultMode = "interrupted"  // something else happens meanwhile, then the effect goes on
)

// SweepFaults are those that an effect of the sweeper may meet: it holds no task.
func SweepFaults() []FaultMode {
	return []FaultMode{ErrorBefore, ErrorAfter, CrashBefore, CrashAfter, Undone}
}

var (
	ErrInjected   = errors.New("injected fault")
	errDead       = errors.New("this process is dead")
	ErrRolledBack = errors.New("rolled back by the test")
)

// Faults chooses one effect of a process and what happens to it.
type Faults struct {
	mu    sync.Mutex
	count int
	At    int
	Mode  FaultMode
	Dead  bool
	Hit   bool
	Hook  func()
}

// effect does f, or what the mode says when it is the chosen one.
func (f *Faults) effect(do func() error) error {
	f.mu.Lock()
	f.count++
	chosen := f.count == f.At
	if f.Dead {
		f.mu.Unlock()
		return errDead
	}
	if chosen {
		f.Hit = true
		f.Dead = f.Mode == CrashBefore || f.Mode == CrashAfter
	}
	f.mu.Unlock()
	if !chosen {
		return do()
	}
	switch f.Mode {
	case ErrorBefore:
		return ErrInjected
	case CrashBefore:
		return errDead
	case ErrorAfter:
		return errors.Join(do(), ErrInjected)
	case CrashAfter:
		return errors.Join(do(), errDead)
	case Interrupted:
		f.Hook()
	case LostCommit, Undone:
	}
	return do()
}

// undoes reports whether the transaction under way is the one to be rolled back.
func (f *Faults) undoes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Mode == Undone && f.count == f.At
}

// FaultyStore is a Store whose writes may fail.
type FaultyStore struct {
	taskstate.Database
	Faults *Faults
}

func (s FaultyStore) Submit(ctx context.Context, p taskstate.PrepareFunc) (out []taskstate.Task, err error) {
	prepare := p
	p = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		tasks, err := prepare(ctx, tx, m)
		if err == nil && s.Faults.undoes() {
			err = ErrRolledBack
		}
		return tasks, err
	}
	err = s.Faults.effect(func() error { out, err = s.Database.Submit(ctx, p); return err })
	return out, err
}

func (s FaultyStore) Apply(ctx context.Context, b taskstate.Batch) (out []taskstate.Outcome, err error) {
	also := b.OnTransition
	b.OnTransition = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
		var err error
		if also != nil {
			err = also(ctx, tx, m, changed)
		}
		if s.Faults.undoes() {
			err = errors.Join(err, ErrRolledBack)
		}
		return err
	}
	err = s.Faults.effect(func() error { out, err = s.Database.Apply(ctx, b); return err })
	return out, err
}

func (s FaultyStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	return s.Faults.effect(func() error {
		return s.Database.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			undone := s.Faults.undoes() // its inside may have effects that count
			err := f(ctx, tx, m)
			if undone {
				err = errors.Join(err, ErrRolledBack)
			}
			return err
		})
	})
}

func (s FaultyStore) WithClaims(ctx context.Context, claims []taskstate.ClaimedTask, f taskstate.ClaimsFunc) error {
	rolledBack := func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, held []bool) error {
		return errors.Join(f(ctx, tx, m, held), ErrRolledBack)
	}
	lost := false
	err := s.Faults.effect(func() error {
		if lost = s.Faults.Mode == LostCommit && s.Faults.count == s.Faults.At; lost || s.Faults.undoes() {
			return s.Database.WithClaims(ctx, claims, rolledBack)
		}
		return s.Database.WithClaims(ctx, claims, f)
	})
	if lost && errors.Is(err, ErrRolledBack) {
		return nil
	}
	return err
}

// faultyVectors is a VectorStore whose calls may fail.
type faultyVectors struct {
	ingest.VectorStore
	f *Faults
}

func (s faultyVectors) Upsert(ctx context.Context, base string, rows []ingest.Vector) error {
	return s.f.effect(func() error { return s.VectorStore.Upsert(ctx, base, rows) })
}

func (s faultyVectors) Delete(ctx context.Context, base string, ids []string) error {
	return s.f.effect(func() error { return s.VectorStore.Delete(ctx, base, ids) })
}

// faultyEmbedder is an Embedder whose calls may fail.
type faultyEmbedder struct {
	ingest.Embedder
	f *Faults
}

func (e faultyEmbedder) Embed(ctx context.Context, texts []string) (out [][]float32, err error) {
	err = e.f.effect(func() error { out, err = e.Embedder.Embed(ctx, texts); return err })
	return out, err
}

// Exec changes rows behind the application's back.
func (w *World) Exec(query string, params ...any) {
	w.T.Helper()
	require.NoError(w.T, w.Store.InTx(w.T.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, query, params...)
		return err
	}))
}

// MuteStore commits, and loses the answer of the first so many transactions.
type MuteStore struct {
	taskstate.Database
	Left atomic.Int64
}

func (s *MuteStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	err := s.Database.InTx(ctx, f)
	if err == nil && s.Left.Add(-1) >= 0 {
		return fmt.Errorf("in tx: %w", taskstate.ErrOutcomeUnknown)
	}
	return err
}
