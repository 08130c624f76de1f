package auth

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/taskstate"
)

// endedKept is how long the row of an ended session without a key is kept: a browser that comes back with it is told that its
// session has ended, and is no guess.
const endedKept = 30 * 24 * time.Hour

// SessionTTL is how long a session lives at most.
const SessionTTL = 12 * time.Hour

// OpenSession makes a session of a key: a secret of its own that is good for what the key is good for, until ends: SessionTTL
// from now, and no longer than the key. Sessions of the key that have ended are removed. by notes the log-in.
// Errors: ErrInvalidKey when the key is gone, the database's.
func (k *Keys) OpenSession(ctx context.Context, by audit.Source, keyID string) (secret string, ends time.Time, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", time.Time{}, fmt.Errorf("make an id: %w", err)
	}
	secret = newSecret(sessionPrefix)
	err = k.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		now := m.Now.UTC().Truncate(time.Microsecond)
		key, err := scanKey(tx.QueryRowContext(ctx, k.q.Get("KeyLive"), keyID, now))
		if errors.Is(err, sql.ErrNoRows) {
			return ErrInvalidKey
		}
		if err != nil {
			return err
		}
		if ends = now.Add(SessionTTL); !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(ends) {
			ends = key.ExpiresAt
		}
		if _, err := tx.ExecContext(ctx, k.q.Get("SessionsEnded"), keyID, now); err != nil {
			return err
		}
		var bases any
		if key.Bases != nil {
			bases = strings.Join(key.Bases, " ")
		}
		if _, err := tx.ExecContext(ctx, k.q.Get("KeyInsert"), id.String(), key.UserID, key.Name, string(key.Role), key.Scopes.String(), bases,
			digest(secret), key.Shown, now, ends, keyID); err != nil {
			return err
		}
		return k.audit.Note(audit.Event{Action: audit.SessionOpen, Source: by, Target: keyID, Detail: "until " + ends.Format(time.RFC3339)})(ctx, tx, m)
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("open a session of key %s: %w", keyID, err)
	}
	return secret, ends, nil
}

// Login is somebody whom an identity provider has proved.
type Login struct {
	Principal        // user, role and scopes are read
	Name      string // of the session, for people; at most maxName characters
	ID        string // of the log-in: no second session is made of one
}

// OpenLogin makes a session of a log-in, without a key: a row of its own with an end, SessionTTL from now, which is listed and
// revoked as keys are. Such sessions that ended longer than endedKept ago are removed. by notes the log-in.
// Errors: ErrLoginUsed, ErrInvalidInput, the database's.
func (k *Keys) OpenLogin(ctx context.Context, by audit.Source, in Login) (secret string, ends time.Time, err error) {
	if err := (NewKey{UserID: in.UserID, Name: in.Name, Role: in.Role}).validate(); err != nil {
		return "", time.Time{}, err
	}
	id := uuid.NewHash(sha256.New(), uuid.Nil, []byte(in.ID), 8).String() // the primary key refuses the second one
	secret = newSecret(sessionPrefix)
	open := func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		var found string
		switch err := tx.QueryRowContext(ctx, k.q.Get("KeyLock"), id).Scan(&found); {
		case err == nil:
			return ErrLoginUsed
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		now := m.Now.UTC().Truncate(time.Microsecond)
		ends = now.Add(SessionTTL)
		if _, err := tx.ExecContext(ctx, k.q.Get("LoginsEnded"), now.Add(-endedKept)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, k.q.Get("KeyInsert"), id, in.UserID, in.Name, string(in.Role), in.Scopes.String(), nil,
			digest(secret), secret[:shownLen], now, ends, nil); err != nil {
			return err
		}
		detail := fmt.Sprintf("%s, role %s, scopes %s, until %s", in.Name, in.Role, in.Scopes, ends.Format(time.RFC3339))
		return k.audit.Note(audit.Event{Action: audit.SessionOpen, Source: by, Target: id, Detail: detail})(ctx, tx, m)
	}
	if err = k.db.InTx(ctx, open); err != nil && !errors.Is(err, ErrLoginUsed) && ctx.Err() == nil {
		err = k.db.InTx(ctx, open) // of two at once the primary key has refused this one: now the other's row is there
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("open a session of a log-in: %w", err)
	}
	return secret, ends, nil
}

// AuthenticateSession returns who holds the secret of a session. An API key is none.
// Errors: ErrInvalidKey, among them ErrSessionEnded; ErrUnavailable of taskstate (wrapped).
func (k *Keys) AuthenticateSession(ctx context.Context, secret string) (Principal, error) {
	if err := checkShape(secret, sessionPrefix); err != nil {
		return Principal{}, err
	}
	now := k.now()
	e, err := k.look(ctx, digest(secret), now)
	if err != nil {
		return Principal{}, err
	}
	who, err := k.admit(e, now)
	if err != nil && e.who.KeyID != "" {
		return who, ErrSessionEnded
	}
	return who, err
}

// CloseSession ends a session for good; one that has ended, or never was, stays so. Other processes follow within cacheTTL.
// login reports whether it is one of OpenLogin.
func (k *Keys) CloseSession(ctx context.Context, secret string) (login bool, err error) {
	if err := checkShape(secret, sessionPrefix); err != nil {
		return false, err
	}
	err = k.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		var logins int
		if err := tx.QueryRowContext(ctx, k.q.Get("SessionOfLogin"), digest(secret)).Scan(&logins); err != nil {
			return err
		}
		login = logins > 0
		_, err := tx.ExecContext(ctx, k.q.Get("SessionRevoke"), m.Now.UTC().Truncate(time.Microsecond), digest(secret))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("close a session: %w", err)
	}
	k.cache.clear()
	return login, nil
}
