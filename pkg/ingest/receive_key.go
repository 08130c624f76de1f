package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// keyLease is how long a key stays claimed by a process that died; a live request renews it.
	// Until then the client's own repeat is answered 409, so it is short; a lease lost to a pause costs nothing,
	// since the task's unique key decides in the end.
	keyLease = 10 * time.Second
	keyRenew = keyLease / 3
	// keyRelease bounds the release when the database does not answer; the lease then ends by itself.
	keyRelease = 2 * time.Second
	// keyTries is how often a claim or release is done whose COMMIT got no answer.
	keyTries = 3
)

// BeginKey claims an idempotency key while a request is being received and keeps it until release is called.
// release must be called once; it waits for the renewal to end.
// Errors: ErrKeyInUse, taskstate.ErrUnavailable.
func (a *App) BeginKey(ctx context.Context, c Caller, key string) (release func(), err error) {
	sum := sha256.Sum256([]byte(key))
	k := heldKey{a: a, user: c.Scope.UserID, key: hex.EncodeToString(sum[:]), request: newID()}
	if err := k.inTx(ctx, k.claim); err != nil {
		if errors.Is(err, taskstate.ErrOutcomeUnknown) {
			k.release(context.WithoutCancel(ctx)) // it may be ours, and the client's repeat would be told 409
		}
		return nil, fmt.Errorf("claim idempotency key: %w", err)
	}
	crash.Point("api.after_key")
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { k.keep(context.WithoutCancel(ctx), stop) })
	return func() {
		close(stop)
		done.Wait()
		k.release(context.WithoutCancel(ctx))
	}, nil
}

// heldKey is a key in the hands of one request.
type heldKey struct {
	a                  *App
	user, key, request string
}

// inTx repeats a transaction without an answer: each of ours names its request and can be done twice.
func (k heldKey) inTx(ctx context.Context, f taskstate.TxFunc) (err error) {
	for range keyTries {
		if err = k.a.d.Store.InTx(ctx, f); !errors.Is(err, taskstate.ErrOutcomeUnknown) {
			return err
		}
	}
	return err
}

// claim takes the key if nobody holds it or its holder's lease is over.
func (k heldKey) claim(ctx context.Context, tx taskstate.Tx, m taskstate.Moment) error {
	until := m.Now.Add(keyLease)
	if _, err := tx.ExecContext(ctx, k.a.q.Get("KeyInsert"), k.user, k.key, k.request, until); err != nil {
		return err
	}
	var holder string
	var expires taskstate.Stamp
	if err := tx.QueryRowContext(ctx, k.a.q.Get("KeyLock"), k.user, k.key).Scan(&holder, &expires); err != nil {
		return err
	}
	if holder == k.request {
		return nil
	}
	if expires.After(m.Now) {
		return ErrKeyInUse
	}
	_, err := tx.ExecContext(ctx, k.a.q.Get("KeyTake"), k.request, until, k.user, k.key)
	return err
}

// keep renews the lease until stop.
func (k heldKey) keep(ctx context.Context, stop <-chan struct{}) {
	ticker := time.NewTicker(keyRenew)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		bounded, cancel := context.WithTimeout(ctx, keyRenew)
		err := k.a.d.Store.InTx(bounded, func(ctx context.Context, tx taskstate.Tx, m taskstate.Moment) error {
			_, err := tx.ExecContext(ctx, k.a.q.Get("KeyRenew"), m.Now.Add(keyLease), k.user, k.key, k.request)
			return err
		})
		cancel()
		if err != nil {
			k.a.d.Log.DebugContext(ctx, "ingest: renew idempotency key", "error", k.a.d.Redact(err.Error()))
		}
	}
}

// release gives the key back; if the database does not answer, its lease ends by itself.
func (k heldKey) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keyRelease)
	defer cancel()
	err := k.inTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.Moment) error {
		_, err := tx.ExecContext(ctx, k.a.q.Get("KeyRelease"), k.user, k.key, k.request)
		return err
	})
	if err != nil {
		k.a.d.Log.DebugContext(ctx, "ingest: release idempotency key", "error", k.a.d.Redact(err.Error()))
	}
}

// sweepKeys removes keys whose requests died.
func (a *App) sweepKeys(ctx context.Context) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.Moment) error {
		_, err := tx.ExecContext(ctx, a.q.Get("KeysExpired"), m.Now)
		return err
	})
}
