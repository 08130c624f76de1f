package auth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/labserver"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

// by is who makes and ends keys here.
var by = audit.Source{Actor: "root", Role: taskstate.RoleOperator, KeyID: "k", IP: "192.0.2.1", RequestID: "r"}

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// database counts look-ups, and holds each until the test lets it go.
type database struct {
	*taskstore.Store
	reads atomic.Int64
	hold  atomic.Pointer[func()]
}

func (d *database) Read(ctx context.Context, f taskstate.ReadFunc) error {
	d.reads.Add(1)
	if hold := d.hold.Load(); hold != nil {
		(*hold)()
	}
	return d.Store.Read(ctx, f)
}

// ended is a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// clock is a time that the test moves; it counts who looked at it.
type clock struct{ at, looks atomic.Int64 }

func (c *clock) Now() time.Time          { c.looks.Add(1); return time.Unix(0, c.at.Load()) }
func (c *clock) Advance(d time.Duration) { c.at.Add(int64(d)) }

type bundle struct {
	*auth.Keys
	db    *database
	clock *clock
}

func open(t *testing.T, cfg taskstore.Config) bundle {
	t.Helper()
	s, err := taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	b := bundle{db: &database{Store: s}, clock: &clock{}}
	b.clock.at.Store(time.Now().UnixNano())
	b.Keys = b.other()
	return b
}

// other is a second process on the same database.
func (b bundle) other() *auth.Keys {
	return auth.New(b.db, slog.New(slog.NewTextHandler(io.Discard, nil)), b.clock.Now)
}

// everyDialect runs a test on each database.
func everyDialect(t *testing.T, test func(t *testing.T, b bundle)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)}))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t), MaxOpen: 4}))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t), MaxOpen: 4}))
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ctx := t.Context()
		secret, key, err := b.Create(ctx, auth.NewKey{By: by, UserID: "ada", Name: "läptop", Role: taskstate.RoleUser})
		require.NoError(t, err)
		who, err := b.Authenticate(ctx, secret)
		require.NoError(t, err)
		require.Equal(t, auth.Principal{UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes(), KeyID: key.ID}, who)
		require.Equal(t, secret[:12], key.Shown)
		_, err = b.Authenticate(ctx, auth.NewSecret())
		require.ErrorIs(t, err, auth.ErrInvalidKey)

		var all []auth.Key
		for range 3 {
			_, k, err := b.Create(ctx, auth.NewKey{By: by, UserID: "bob", Role: taskstate.RoleOperator, Scopes: auth.AllScopes(), TTL: time.Hour})
			require.NoError(t, err)
			all = append([]auth.Key{k}, all...)
		}
		all = append(all, key)
		var got []auth.Key
		var after *auth.Key
		for {
			rows, err := b.List(ctx, after, 3)
			require.NoError(t, err)
			if len(rows) == 0 {
				break
			}
			got = append(got, rows...)
			after = &rows[len(rows)-1]
		}
		require.Equal(t, all, got)

		require.ErrorIs(t, b.Revoke(ctx, by, "0190a6e0-0000-7000-8000-000000000000"), auth.ErrKeyNotFound)
		require.NoError(t, b.Revoke(ctx, by, key.ID))
		require.NoError(t, b.Revoke(ctx, by, key.ID))
		_, err = b.Authenticate(ctx, secret)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
	})
}

// A key that one process revoked ends in every other within five seconds.
func TestRevocationReachesOtherProcesses(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ctx := t.Context()
		secret, key, err := b.Create(ctx, auth.NewKey{By: by, UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes()})
		require.NoError(t, err)
		other := b.other()
		_, err = other.Authenticate(ctx, secret)
		require.NoError(t, err)
		reads := b.db.reads.Load()
		for range 100 {
			_, err = other.Authenticate(ctx, secret)
			require.NoError(t, err)
		}
		require.Equal(t, reads, b.db.reads.Load(), "the cache was not used")
		require.NoError(t, b.Revoke(ctx, by, key.ID))
		b.clock.Advance(5 * time.Second)
		_, err = other.Authenticate(ctx, secret)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
	})
}

func TestExpiryByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ctx := t.Context()
		b.clock.Advance(-24 * time.Hour) // this process's clock is wrong by a day
		secret, _, err := b.Create(ctx, auth.NewKey{By: by, UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes(), TTL: time.Minute})
		require.NoError(t, err)
		_, err = b.Authenticate(ctx, secret)
		require.NoError(t, err)
		b.clock.Advance(2 * time.Second)
		_, err = b.Authenticate(ctx, secret)
		require.NoError(t, err)
		ended, _, err := b.Create(ctx, auth.NewKey{By: by, UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes(), TTL: time.Microsecond})
		require.NoError(t, err)
		_, err = b.other().Authenticate(ctx, ended)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
	})
}

func TestExpiryWhileCached(t *testing.T) {
	t.Parallel()
	now := time.Now() // the database's clock stands still, however slow the machine
	b := open(t, taskstore.Config{DatabaseURL: taskstoretest.SQLite(t), Now: func() time.Time { return now }})
	secret, _, err := b.Create(t.Context(), auth.NewKey{By: by, UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes(), TTL: 2 * time.Second})
	require.NoError(t, err)
	_, err = b.Authenticate(t.Context(), secret)
	require.NoError(t, err)
	reads := b.db.reads.Load()
	b.clock.Advance(2500 * time.Millisecond) // less than the cache's time
	_, err = b.Authenticate(t.Context(), secret)
	require.ErrorIs(t, err, auth.ErrInvalidKey)
	require.Equal(t, reads, b.db.reads.Load())
}

func TestLastUseIsWritten(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		secret, _, err := b.Create(t.Context(), auth.NewKey{By: by, UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes()})
		require.NoError(t, err)
		_, err = b.Authenticate(t.Context(), secret)
		require.NoError(t, err)
		require.NoError(t, b.Run(ended())) // a stop writes what is left
		rows, err := b.List(t.Context(), nil, 1)
		require.NoError(t, err)
		require.Equal(t, b.clock.Now().UTC().Truncate(time.Minute), rows[0].LastUsedAt)
	})
}

func TestEnsureIsRepeatable(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		secret := auth.NewSecret()
		for range 2 {
			require.NoError(t, b.Ensure(t.Context(), secret, auth.NewKey{UserID: "root", Role: taskstate.RoleOperator, Scopes: auth.AllScopes()}))
		}
		who, err := b.Authenticate(t.Context(), secret)
		require.NoError(t, err)
		require.True(t, who.Operator())
		rows, err := b.List(t.Context(), nil, 9)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.ErrorIs(t, b.Ensure(t.Context(), "x", auth.NewKey{UserID: "root", Role: taskstate.RoleOperator, Scopes: auth.AllScopes()}), auth.ErrInvalidKey)
	})
}

func TestBadWishes(t *testing.T) {
	t.Parallel()
	b := open(t, taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)})
	for _, in := range []auth.NewKey{
		{Role: taskstate.RoleUser}, {UserID: "a\xff", Role: taskstate.RoleUser, Scopes: auth.AllScopes()}, {UserID: "a", Role: "root"}, {UserID: "a", Role: taskstate.RoleUser, Scopes: auth.AllScopes(), TTL: -1},
		{UserID: "system", Role: taskstate.RoleUser, Scopes: auth.AllScopes()}, {UserID: "system", Role: taskstate.RoleOperator, Scopes: auth.AllScopes()},
		{UserID: "a\x1b[2J", Role: taskstate.RoleUser}, {UserID: "a", Name: "b\nc", Role: taskstate.RoleUser},
		{UserID: "a", Name: fmt.Sprintf("%0191d", 1), Role: taskstate.RoleUser, Scopes: auth.AllScopes()}, {UserID: fmt.Sprintf("%0191d", 1), Role: taskstate.RoleUser, Scopes: auth.AllScopes()},
	} {
		_, _, err := b.Create(t.Context(), in)
		require.ErrorIs(t, err, auth.ErrInvalidInput)
	}
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	b := open(t, taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)})
	secret, _, err := b.Create(t.Context(), auth.NewKey{By: by, UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes()})
	require.NoError(t, err)
	require.NoError(t, b.db.Close())
	_, err = b.Authenticate(t.Context(), secret)
	require.ErrorIs(t, err, taskstate.ErrUnavailable)
	require.False(t, errors.Is(err, auth.ErrInvalidKey), "nobody may be told that his key is wrong when nobody looked")
}

func TestScopesAreKept(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		for _, names := range [][]string{nil, {"read"}, {"write"}, {"write", "read"}, {"search"}, {"upload", "search"}, {"upload", "read"}} {
			want, err := auth.ParseScopes(names...)
			require.NoError(t, err)
			secret, key, err := b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, Scopes: want})
			require.NoError(t, err)
			who, err := b.Authenticate(t.Context(), secret)
			require.NoError(t, err)
			require.Equal(t, want, who.Scopes)
			require.Equal(t, want, key.Scopes)
			require.Equal(t, len(names) == 0 || slices.Contains(names, "read"), who.May(auth.ScopeRead))
			require.Equal(t, len(names) == 0 || slices.Contains(names, "write"), who.May(auth.ScopeWrite))
			require.Equal(t, who.May(auth.ScopeRead) || slices.Contains(names, "search"), who.May(auth.ScopeSearch))
			require.Equal(t, who.May(auth.ScopeWrite) || slices.Contains(names, "upload"), who.May(auth.ScopeUpload))
			require.Nil(t, who.Bases)
		}
	})
	_, err := auth.ParseScopes("read", "admin")
	require.ErrorIs(t, err, auth.ErrInvalidInput)
}

func TestAKeyIsLimitedToBasesOfItsUser(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ids := map[string]string{}
		for i, name := range []string{"notes", "letters", "of bob", "gone"} {
			ids[name] = fmt.Sprintf("0190a6e0-0000-7000-8000-00000000000%d", i)
			user := "ada"
			if name == "of bob" {
				user = "bob"
			}
			require.NoError(t, b.db.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO knowledge_base (id, user_id, name, live_name, created_at, updated_at, sweep_at)
					VALUES (?, ?, ?, ?, ?, ?, ?)`, ids[name], user, name, name, m.Now, m.Now, m.Now)
				if err == nil && name == "gone" {
					_, err = tx.ExecContext(ctx, "UPDATE knowledge_base SET deleted_at = ?, live_name = NULL WHERE id = ?", m.Now, ids[name])
				}
				return err
			}))
		}
		want := []string{ids["notes"], ids["letters"]}
		secret, key, err := b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, By: by, Bases: []string{"notes", ids["letters"], ids["notes"]}})
		require.NoError(t, err)
		require.Equal(t, want, key.Bases)
		who, err := b.Authenticate(t.Context(), secret)
		require.NoError(t, err)
		require.Equal(t, want, who.Bases)
		all, err := b.List(t.Context(), nil, 10)
		require.NoError(t, err)
		require.Equal(t, want, all[0].Bases)
		for _, name := range []string{"of bob", ids["of bob"], "gone", ids["gone"], "", "none"} {
			_, _, err = b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, Bases: []string{"notes", name}})
			require.ErrorIs(t, err, auth.ErrInvalidInput, name)
		}
		_, _, err = b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleOperator, Bases: []string{"notes"}})
		require.ErrorIs(t, err, auth.ErrInvalidInput)
		_, _, err = b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, Bases: make([]string, 51)})
		require.ErrorIs(t, err, auth.ErrInvalidInput)
	})
}

// Who made and ended a key stands in the audit log; the secret does not.
func TestKeysAreAudited(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		secret, key, err := b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, By: by})
		require.NoError(t, err)
		require.NoError(t, b.Revoke(t.Context(), by, key.ID))
		rows, err := audit.New(b.db, slog.New(slog.DiscardHandler)).List(t.Context(), audit.Query{Limit: 9})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		for i, action := range []audit.Action{audit.KeyRevoke, audit.KeyCreate} {
			require.Equal(t, action, rows[i].Action)
			require.Equal(t, by, rows[i].Source)
			require.Equal(t, key.ID, rows[i].Target)
			require.NotContains(t, fmt.Sprint(rows[i]), secret)
		}
	})
}

// Look-ups that come at once share a statement: many of one key whose entry has grown old, and guesses.
func TestLookupsShareStatements(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ctx, other := t.Context(), b.other() // which has never seen the key
		const callers = 300
		secret, key, err := b.Create(ctx, auth.NewKey{By: by, UserID: "ada", Role: taskstate.RoleUser})
		require.NoError(t, err)
		atOnce := func(secret func() string, want error) (reads int64) {
			t.Helper()
			looks, before := b.clock.looks.Load()+callers, b.db.reads.Load()
			hold := func() { // until all have come: a look at the clock is a caller's first step
				for b.clock.looks.Load() < looks {
					runtime.Gosched()
				}
			}
			b.db.hold.Store(&hold)
			defer b.db.hold.Store(nil)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					_, err := other.Authenticate(ctx, secret())
					assert.ErrorIs(t, err, want)
				})
			}
			all.Wait()
			return b.db.reads.Load() - before
		}
		valid := func() string { return secret }
		require.LessOrEqual(t, atOnce(valid, nil), int64(2), "statements: one, and one beside it if that took longer than a second")
		b.clock.Advance(5 * time.Second)
		require.LessOrEqual(t, atOnce(valid, nil), int64(2), "statements for a key whose entry has grown old")
		t.Logf("%d guesses took %d statements", callers, atOnce(auth.NewSecret, auth.ErrInvalidKey))

		require.NoError(t, b.Revoke(ctx, by, key.ID))
		b.clock.Advance(5 * time.Second)
		_, err = other.Authenticate(ctx, secret)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
		require.NoError(t, b.db.Close())
		_, err = other.Authenticate(ctx, auth.NewSecret())
		require.ErrorIs(t, err, taskstate.ErrUnavailable)
	})
}

// A key of a user id that no release would take today opens nothing, and the log says which key it is.
func TestKeyOfAnInvalidUserID(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		for _, id := range []string{"ada ", "mu\u0308ller", "ada\u202e"} {
			secret, key, err := b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser})
			require.NoError(t, err)
			require.NoError(t, b.db.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
				_, err := tx.ExecContext(ctx, "UPDATE api_key SET user_id = ? WHERE id = ?", id, key.ID)
				return err
			}))
			_, err = b.Authenticate(t.Context(), secret)
			require.ErrorIs(t, err, auth.ErrInvalidKey, "%+q", id)
		}
	})
}
