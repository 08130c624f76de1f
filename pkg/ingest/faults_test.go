package ingest

import (
	"context"
	"errors"
	"sync"

	"github.com/millweir/millweir/pkg/taskstate"
)

// faultMode says what happens to the effect that is chosen.
type faultMode string

const (
	errorBefore faultMode = "error before" // the effect does not happen, its caller is told so
	errorAfter  faultMode = "error after"  // it happens, its caller is told that it failed: an answer that was lost
	crashBefore faultMode = "crash before" // the process ends just before
	crashAfter  faultMode = "crash after"  // the process ends just after
	lostCommit  faultMode = "lost commit"  // a holder's transaction is rolled back and taken for done
	undone      faultMode = "undone"       // a transaction's whole inside happens, and is rolled back instead of committed
	interrupted faultMode = "interrupted"  // something else happens meanwhile, then the effect goes on
)

var (
	errInjected   = errors.New("injected fault")
	errDead       = errors.New("this process is dead")
	errRolledBack = errors.New("rolled back by the test")
)

// faults chooses one effect of a process and what happens to it.
type faults struct {
	mu    sync.Mutex
	count int
	at    int
	mode  faultMode
	dead  bool
	hit   bool
	hook  func()
}

// effect does f, or what the mode says when it is the chosen one.
func (f *faults) effect(do func() error) error {
	f.mu.Lock()
	f.count++
	chosen := f.count == f.at
	if f.dead {
		f.mu.Unlock()
		return errDead
	}
	if chosen {
		f.hit = true
		f.dead = f.mode == crashBefore || f.mode == crashAfter
	}
	f.mu.Unlock()
	if !chosen {
		return do()
	}
	switch f.mode {
	case errorBefore:
		return errInjected
	case crashBefore:
		return errDead
	case errorAfter:
		return errors.Join(do(), errInjected)
	case crashAfter:
		return errors.Join(do(), errDead)
	case interrupted:
		f.hook()
	case lostCommit, undone:
	}
	return do()
}

// undoes reports whether the transaction under way is the one to be rolled back.
func (f *faults) undoes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mode == undone && f.count == f.at
}

// rollBack lets the inside of a transaction end with an error.
func rollBack(ctx context.Context, inside func(ctx context.Context) error) error {
	return errors.Join(inside(ctx), errRolledBack)
}

// faultyStore is a Store whose writes may fail.
type faultyStore struct {
	taskstate.Store
	f *faults
}

func (s faultyStore) Submit(ctx context.Context, p taskstate.PrepareFunc) (out []taskstate.Task, err error) {
	prepare := p
	p = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		tasks, err := prepare(ctx, tx, m)
		if err == nil && s.f.undoes() {
			err = errRolledBack
		}
		return tasks, err
	}
	err = s.f.effect(func() error { out, err = s.Store.Submit(ctx, p); return err })
	return out, err
}

func (s faultyStore) Apply(ctx context.Context, b taskstate.Batch) (out []taskstate.Outcome, err error) {
	also := b.OnTransition
	b.OnTransition = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
		var err error
		if also != nil {
			err = also(ctx, tx, m, changed)
		}
		if s.f.undoes() {
			err = errors.Join(err, errRolledBack)
		}
		return err
	}
	err = s.f.effect(func() error { out, err = s.Store.Apply(ctx, b); return err })
	return out, err
}

func (s faultyStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	return s.f.effect(func() error {
		return s.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			inside := func(ctx context.Context) error { return f(ctx, tx, m) }
			if s.f.undoes() {
				return rollBack(ctx, inside)
			}
			return inside(ctx)
		})
	})
}

func (s faultyStore) WithClaims(ctx context.Context, claims []taskstate.ClaimedTask, f taskstate.ClaimsFunc) error {
	rolledBack := func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, held []bool) error {
		return errors.Join(f(ctx, tx, m, held), errRolledBack)
	}
	lost := false
	err := s.f.effect(func() error {
		if lost = s.f.mode == lostCommit && s.f.count == s.f.at; lost {
			return s.Store.WithClaims(ctx, claims, rolledBack)
		}
		if s.f.undoes() {
			return s.Store.WithClaims(ctx, claims, rolledBack)
		}
		return s.Store.WithClaims(ctx, claims, f)
	})
	if lost && errors.Is(err, errRolledBack) {
		return nil
	}
	return err
}

// faultyVectors is a VectorStore whose calls may fail.
type faultyVectors struct {
	VectorStore
	f *faults
}

func (s faultyVectors) Upsert(ctx context.Context, base string, rows []Vector) error {
	return s.f.effect(func() error { return s.VectorStore.Upsert(ctx, base, rows) })
}

func (s faultyVectors) Delete(ctx context.Context, base string, ids []string) error {
	return s.f.effect(func() error { return s.VectorStore.Delete(ctx, base, ids) })
}

// faultyEmbedder is an Embedder whose calls may fail.
type faultyEmbedder struct {
	Embedder
	f *faults
}

func (e faultyEmbedder) Embed(ctx context.Context, texts []string) (out [][]float32, err error) {
	err = e.f.effect(func() error { out, err = e.Embedder.Embed(ctx, texts); return err })
	return out, err
}
