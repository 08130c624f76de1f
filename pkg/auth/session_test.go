package auth_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A session is its key with another secret and an end, no key itself, and goes with its key.
func TestSession(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ctx := t.Context()
		scopes, err := auth.ParseScopes("read")
		require.NoError(t, err)
		secret, key, err := b.Create(ctx, auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, Scopes: scopes, By: by})
		require.NoError(t, err)
		before := time.Now()
		session, ends, err := b.OpenSession(ctx, by, key.ID)
		require.NoError(t, err)
		require.WithinDuration(t, before.Add(auth.SessionTTL), ends, time.Minute)

		who, err := b.AuthenticateSession(ctx, session)
		require.NoError(t, err)
		require.Equal(t, auth.Principal{UserID: "ada", Role: taskstate.RoleUser, Scopes: scopes, KeyID: key.ID}, who)

		// Neither secret is good in the other's place, and a session is not a key that sessions are made of.
		_, err = b.Authenticate(ctx, session)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
		_, err = b.AuthenticateSession(ctx, secret)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
		all, err := b.List(ctx, nil, 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, key.ID, all[0].ID)
		require.False(t, all[0].ExpiresAt.After(time.Time{}))

		// Log-out ends it for others too, once their caches are over.
		other := b.other()
		second, _, err := b.OpenSession(ctx, by, key.ID)
		require.NoError(t, err)
		_, err = other.AuthenticateSession(ctx, second)
		require.NoError(t, err)
		login, err := b.CloseSession(ctx, second)
		require.NoError(t, err)
		require.False(t, login)
		_, err = b.AuthenticateSession(ctx, second)
		require.ErrorIs(t, err, auth.ErrSessionEnded)
		b.clock.Advance(5 * time.Second)
		_, err = other.AuthenticateSession(ctx, second)
		require.ErrorIs(t, err, auth.ErrSessionEnded)

		// So does the revocation of its key, of which no session can be made then.
		_, err = other.AuthenticateSession(ctx, session)
		require.NoError(t, err)
		require.NoError(t, b.Revoke(ctx, by, key.ID))
		_, err = b.AuthenticateSession(ctx, session)
		require.ErrorIs(t, err, auth.ErrSessionEnded)
		b.clock.Advance(5 * time.Second)
		_, err = other.AuthenticateSession(ctx, session)
		require.ErrorIs(t, err, auth.ErrSessionEnded)
		_, _, err = b.OpenSession(ctx, by, key.ID)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
	})
}

// A session does not outlive its key.
func TestSessionEndsWithItsKey(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		_, key, err := b.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleOperator, TTL: time.Hour, By: by})
		require.NoError(t, err)
		_, ends, err := b.OpenSession(t.Context(), by, key.ID)
		require.NoError(t, err)
		require.True(t, ends.Equal(key.ExpiresAt), "%s, %s", ends, key.ExpiresAt)
	})
}

// A session that is over by the database's clock is told apart from one that never was, and its row goes with the next log-in.
func TestSessionEndsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ctx := t.Context()
		_, key, err := b.Create(ctx, auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, By: by})
		require.NoError(t, err)
		session, _, err := b.OpenSession(ctx, by, key.ID)
		require.NoError(t, err)
		require.NoError(t, b.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE api_key SET expires_at = created_at WHERE parent_id IS NOT NULL")
			return err
		}))
		_, err = b.AuthenticateSession(ctx, session)
		require.ErrorIs(t, err, auth.ErrSessionEnded)
		_, _, err = b.OpenSession(ctx, by, key.ID)
		require.NoError(t, err)
		_, err = b.other().AuthenticateSession(ctx, session)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
		require.NotErrorIs(t, err, auth.ErrSessionEnded)
	})
}

// A log-in at an identity provider makes a session without a key. It is listed while it lasts, revoked as keys are, no key, and
// made once.
func TestSessionWithoutAKey(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ctx := t.Context()
		scopes, err := auth.ParseScopes("read")
		require.NoError(t, err)
		ada := auth.Principal{UserID: "ada", Role: taskstate.RoleOperator, Scopes: scopes}
		session, ends, err := b.OpenLogin(ctx, by, auth.Login{Principal: ada, Name: "ada@id.example", ID: "one"})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(auth.SessionTTL), ends, time.Minute)
		_, _, err = b.OpenLogin(ctx, by, auth.Login{Principal: ada, ID: "one"})
		require.ErrorIs(t, err, auth.ErrLoginUsed)
		_, _, err = b.OpenLogin(ctx, by, auth.Login{Principal: auth.Principal{UserID: "", Role: taskstate.RoleUser}, ID: "two"})
		require.ErrorIs(t, err, auth.ErrInvalidInput)

		who, err := b.AuthenticateSession(ctx, session)
		require.NoError(t, err)
		all, err := b.List(ctx, nil, 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		ada.KeyID, ada.Name = all[0].ID, "ada@id.example"
		require.Equal(t, ada, who)
		require.Equal(t, session[:12], all[0].Shown)
		require.Equal(t, "ada@id.example", all[0].Name)
		_, err = b.Authenticate(ctx, session)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
		_, _, err = b.OpenSession(ctx, by, ada.KeyID)
		require.ErrorIs(t, err, auth.ErrInvalidKey, "no session is made of a session")

		require.NoError(t, b.Revoke(ctx, by, ada.KeyID))
		_, err = b.AuthenticateSession(ctx, session)
		require.ErrorIs(t, err, auth.ErrSessionEnded)

		// Log-out ends it.
		second, _, err := b.OpenLogin(ctx, by, auth.Login{Principal: ada, ID: "two"})
		require.NoError(t, err)
		_, err = b.AuthenticateSession(ctx, second)
		require.NoError(t, err)
		login, err := b.CloseSession(ctx, second)
		require.NoError(t, err)
		require.True(t, login)
		_, err = b.AuthenticateSession(ctx, second)
		require.ErrorIs(t, err, auth.ErrSessionEnded)

		// One that has ended is told so for a month, is listed no more, and goes with a later log-in; keys that have ended stay.
		key := b.ended(t, ctx)
		b.exec(t, "UPDATE api_key SET expires_at = created_at WHERE id <> ?", key)
		b.clock.Advance(5 * time.Second)
		_, err = b.AuthenticateSession(ctx, second)
		require.ErrorIs(t, err, auth.ErrSessionEnded)
		all, err = b.List(ctx, nil, 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, key, all[0].ID)
		after, err := b.List(ctx, &auth.Key{ID: "ffffffff-0000-7000-8000-000000000000", CreatedAt: time.Now().Add(time.Hour)}, 10)
		require.NoError(t, err)
		require.Len(t, after, 1)
		b.exec(t, "UPDATE api_key SET expires_at = '2020-01-01 00:00:00.000000'")
		_, _, err = b.OpenLogin(ctx, by, auth.Login{Principal: ada, ID: "three"})
		require.NoError(t, err)
		_, err = b.AuthenticateSession(ctx, second)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
		b.clock.Advance(5 * time.Second)
		_, err = b.AuthenticateSession(ctx, second)
		require.NotErrorIs(t, err, auth.ErrSessionEnded)
		all, err = b.List(ctx, nil, 10)
		require.NoError(t, err)
		require.Len(t, all, 2)
	})
}

// Of two sessions that are made of one log-in at once, one is.
func TestOneSessionOfALogin(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, b bundle) {
		ada := auth.Principal{UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes()}
		results := make(chan error, 8)
		for range cap(results) {
			go func() {
				_, _, err := b.OpenLogin(t.Context(), by, auth.Login{Principal: ada, ID: "one"})
				results <- err
			}()
		}
		made := 0
		for range cap(results) {
			if err := <-results; err == nil {
				made++
			} else {
				require.ErrorIs(t, err, auth.ErrLoginUsed)
			}
		}
		require.Equal(t, 1, made)
	})
}

// ended is the id of a key that has ended.
func (b bundle) ended(t *testing.T, ctx context.Context) string {
	t.Helper()
	_, key, err := b.Create(ctx, auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, TTL: time.Microsecond, By: by})
	require.NoError(t, err)
	return key.ID
}

// exec changes rows past every check.
func (b bundle) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	require.NoError(t, b.db.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}
