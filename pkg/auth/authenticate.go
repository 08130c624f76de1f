package auth

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// cacheTTL is how long an answer of the database is believed, and so how long a revoked key may live on elsewhere (≤ 5 s).
	cacheTTL = 3 * time.Second
	// cacheMax bounds the cache; a full one is emptied, which costs look-ups and nothing else.
	cacheMax = 10_000
	// usedEvery is the pause between two writes of last_used_at; its precision is the minute.
	usedEvery = 30 * time.Second
	// usedBatch is the most keys of one write.
	usedBatch = 500
	// lookMost is the most digests of one statement, lookWait how long a slow statement holds up those that came after it.
	lookMost = 200
	lookWait = time.Second
	// flushTimeout bounds the last write at a stop.
	flushTimeout = 5 * time.Second
)

//go:embed queries/*.sql
var queries embed.FS

// Authenticate returns who holds the secret. What cannot be a key is refused without a look-up.
// Errors: ErrInvalidKey; ErrUnavailable of taskstate (wrapped) when the database does not answer.
func (k *Keys) Authenticate(ctx context.Context, secret string) (Principal, error) {
	if err := CheckShape(secret); err != nil {
		return Principal{}, err
	}
	now := k.now()
	e, err := k.look(ctx, digest(secret), now)
	if err != nil {
		return Principal{}, err
	}
	return k.admit(e, now)
}

// admit is who an answer of the database lets in.
func (k *Keys) admit(e entry, now time.Time) (Principal, error) {
	if !e.valid || !e.ends.IsZero() && !now.Before(e.ends) {
		return Principal{}, ErrInvalidKey
	}
	k.used.note(e.who.KeyID, now)
	return e.who, nil
}

// look is what the database says of a digest; the zero entry: there is no such key or session. Look-ups that come at once share
// one statement, however many come, so that neither guesses nor a known key whose entry has grown old cost the database more.
// What is no key is not kept: guesses push no good key out of the cache.
func (k *Keys) look(ctx context.Context, sum string, now time.Time) (entry, error) {
	if e, known := k.cache.get(sum, now); known {
		return e, nil
	}
	l := &lookup{sum: sum, at: now}
	if err := k.lookups.Do(ctx, l)[0]; err != nil {
		if ctx.Err() != nil {
			return entry{}, ctx.Err()
		}
		return entry{}, fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
	}
	return l.found, nil
}

// lookup is one digest that is looked up, and what came of it.
type lookup struct {
	sum   string
	at    time.Time
	found entry
}

// lookAll looks several digests up. What the batch before has found is not asked for again.
func (k *Keys) lookAll(ctx context.Context, b *batcher.Batch[*lookup]) error {
	asked := map[string]bool{}
	for _, l := range b.Items() {
		if e, known := k.cache.get(l.sum, l.at); known {
			l.found = e
		} else {
			asked[l.sum] = true
		}
	}
	if len(asked) == 0 {
		return nil
	}
	found, now, err := k.findAll(ctx, slices.Collect(maps.Keys(asked)))
	if err != nil {
		return err
	}
	for _, l := range b.Items() {
		if key, ok := found[l.sum]; ok && asked[l.sum] {
			l.found = k.entryOf(ctx, key, now, l.at)
			k.cache.put(l.sum, l.found)
		}
	}
	return nil
}

// entryOf is what a key's row says, read at dbNow by the database's clock and at now by ours.
func (k *Keys) entryOf(ctx context.Context, key Key, dbNow, now time.Time) entry {
	bad := CheckUserID(key.UserID)
	if bad != nil { // of a release that did not judge it; fsck lists the rows of such a user
		k.log.WarnContext(ctx, "auth: API key of an invalid user id refused", slog.String("key_id", key.ID), slog.Any("error", bad))
	}
	e := entry{at: now, valid: key.RevokedAt.IsZero() && bad == nil, who: Principal{UserID: key.UserID, Role: key.Role, Scopes: key.Scopes, KeyID: key.ID, Bases: key.Bases}}
	if strings.HasPrefix(key.Shown, sessionPrefix) {
		e.who.Name = key.Name
	}
	if !key.ExpiresAt.IsZero() {
		// The database's clock made the time, so what is left is counted by it and kept on ours.
		left := key.ExpiresAt.Sub(dbNow)
		e.valid = e.valid && left > 0
		e.ends = now.Add(left)
	}
	return e
}

// Run writes last_used_at from time to time until ctx ends, and once more then.
func (k *Keys) Run(ctx context.Context) error {
	tick := time.NewTicker(usedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
			defer cancel()
			k.flush(last)
			return nil
		}
	}
}

// flush writes what was used since the last time. It is of use to people only: a failure is noted and tried again with later use.
func (k *Keys) flush(ctx context.Context) {
	for minute, ids := range k.used.take() {
		for len(ids) > 0 {
			batch := ids[:min(len(ids), usedBatch)]
			ids = ids[len(batch):]
			args := []any{minute, minute}
			for _, id := range batch {
				args = append(args, id)
			}
			err := k.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
				_, err := tx.ExecContext(ctx, k.q.List("KeyUsed", len(batch)), args...)
				return err
			})
			if err != nil {
				k.log.WarnContext(ctx, "auth: last use of API keys not written", slog.Int("keys", len(batch)), slog.Any("error", err))
				return
			}
		}
	}
}

// entry is one answer of the database.
type entry struct {
	at    time.Time // when it was given
	valid bool
	ends  time.Time // by this process's clock; zero: never
	who   Principal
}

// cache holds answers by digest; the secrets themselves are nowhere.
type cache struct {
	mu   sync.Mutex
	byID map[string]entry
}

func newCache() *cache { return &cache{byID: map[string]entry{}} }

func (c *cache) get(sum string, now time.Time) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[sum]
	if !ok || now.Sub(e.at) >= cacheTTL {
		return entry{}, false
	}
	return e, true
}

func (c *cache) put(sum string, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= cacheMax {
		clear(c.byID)
	}
	c.byID[sum] = e
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
}

// usage remembers in which minute keys were used.
type usage struct {
	mu   sync.Mutex
	last map[string]time.Time // key id → minute, not yet written
	done map[string]time.Time // key id → minute, written
}

func newUsage() *usage {
	return &usage{last: map[string]time.Time{}, done: map[string]time.Time{}}
}

func (u *usage) note(id string, now time.Time) {
	minute := now.UTC().Truncate(time.Minute)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done[id].Before(minute) {
		u.last[id] = minute
	}
}

// take returns the keys to write by minute.
func (u *usage) take() map[time.Time][]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[time.Time][]string{}
	for id, minute := range u.last {
		out[minute] = append(out[minute], id)
	}
	u.done, u.last = u.last, map[string]time.Time{}
	return out
}
