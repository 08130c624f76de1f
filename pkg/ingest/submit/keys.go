// Package submit keeps one request at a time under an idempotency key while its upload is received.
package submit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Keys holds the idempotency keys of requests that are being received. It is safe for concurrent use.
type Keys struct {
	d    ingest.Deps
	q    sqldb.Queries
	keys *batcher.Batcher[*keyChange]
}

// NewKeys makes a Keys.
func NewKeys(d ingest.Deps, q sqldb.Queries) *Keys {
	a := &Keys{d: d, q: q}
	a.keys = batcher.New(batcher.Config{
		Workers: keysWorkers, MinConcurrent: keysMinConcurrent, Most: keysMost, MaxWait: keysMaxWait, Split: ingest.Splits,
	}, a.changeKeys)
	return a
}

const (
	// Claims and releases of keys that come together share a transaction.
	keysMost          = 128
	keysWorkers       = 2
	keysMinConcurrent = 24
	keysMaxWait       = 250 * time.Millisecond
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
// release must be called once; it waits for the renewal to end. Claims and releases that come together share transactions.
// Errors: ErrKeyInUse, taskstate.ErrUnavailable.
func (a *Keys) BeginKey(ctx context.Context, c ingest.Caller, key string) (release func(), err error) {
	k := heldKey{a: a, user: c.Scope.UserID, key: ingest.RequestKey(key), request: ingest.NewID()}
	if err := k.do(ctx, true); err != nil {
		if errors.Is(err, taskstate.ErrOutcomeUnknown) || ctx.Err() != nil {
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
	a                  *Keys
	user, key, request string
}

// keyChange is the claim or the release of a key, and what came of it.
type keyChange struct {
	heldKey
	claim bool
	err   error
}

// do joins the next transaction.
func (k heldKey) do(ctx context.Context, claim bool) error {
	c := &keyChange{heldKey: k, claim: claim}
	if err := k.a.keys.Do(ctx, c)[0]; err != nil {
		return err
	}
	return c.err
}

// changeKeys does a batch of claims and releases. It repeats what got no answer: each names its request and can be done twice.
func (a *Keys) changeKeys(ctx context.Context, b *batcher.Batch[*keyChange]) (err error) {
	changes := b.Items()
	for range keyTries {
		err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			return a.changeKeysTx(ctx, tx, m, changes)
		})
		if !errors.Is(err, taskstate.ErrOutcomeUnknown) {
			return err
		}
	}
	return err
}

// changeKeysTx releases first, so that a repeat which comes as its forerunner ends is let in.
func (a *Keys) changeKeysTx(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changes []*keyChange) error {
	claims := map[sqldb.Pair]*keyChange{}
	var released []any
	for _, c := range changes {
		c.err = nil
		k := sqldb.Pair{c.user, c.key}
		switch {
		case !c.claim:
			released = append(released, c.user, c.key, c.request)
		case claims[k] == nil:
			claims[k] = c
		default:
			c.err = ingest.ErrKeyInUse // by an earlier one of this batch, or by who keeps that one out
		}
	}
	if n := len(released) / 3; n > 0 {
		if _, err := tx.ExecContext(ctx, a.q.Any("KeysRelease", n), released...); err != nil {
			return err
		}
	}
	if len(claims) == 0 {
		return nil
	}
	return a.claimKeys(ctx, tx, m, claims)
}

// claimKeys takes the keys that nobody holds or whose holder's lease is over.
func (a *Keys) claimKeys(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, claims map[sqldb.Pair]*keyChange) error {
	until := m.Now.Add(keyLease)
	wanted := map[sqldb.Pair]bool{}
	var rows []any
	for _, k := range slices.SortedFunc(maps.Keys(claims), sqldb.Pair.Compare) {
		wanted[k] = true
		rows = append(rows, k[0], k[1], claims[k].request, until)
	}
	if _, err := tx.ExecContext(ctx, a.q.Rows("KeysInsert", len(claims)), rows...); err != nil {
		return err
	}
	var expired []*keyChange
	params := sqldb.PairArgs(wanted)
	err := sqldb.QueryRows(ctx, tx, "lock keys", a.q.Any("KeysLock", len(params)/2), params, func(rows *sql.Rows) error {
		var k sqldb.Pair
		var holder string
		var expires taskstate.DBTime
		err := rows.Scan(&k[0], &k[1], &holder, &expires)
		switch c := claims[k]; {
		case c == nil || holder == c.request:
		case expires.After(m.Now):
			c.err = ingest.ErrKeyInUse
		default:
			expired = append(expired, c)
		}
		return err
	})
	for _, c := range expired {
		if err == nil {
			_, err = tx.ExecContext(ctx, a.q.Get("KeyTake"), c.request, until, c.user, c.key)
		}
	}
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
		err := k.a.d.Store.InTx(bounded, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
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
	if err := k.do(ctx, false); err != nil {
		k.a.d.Log.DebugContext(ctx, "ingest: release idempotency key", "error", k.a.d.Redact(err.Error()))
	}
}

// SweepKeys removes keys whose requests died.
func (a *Keys) SweepKeys(ctx context.Context) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, a.q.Get("KeysExpired"), m.Now)
		return err
	})
}
