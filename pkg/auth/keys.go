package auth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// maxBases is how many knowledge bases a key can be limited to.
const maxBases = 50

// maxName is the most characters of a key's name, as the column has it.
const maxName = 190

// ErrInvalidInput is for a key that cannot be made as asked; the text says what is wrong.
var ErrInvalidInput = errors.New("invalid API key request")

// NewKey is a wish for a key.
type NewKey struct {
	UserID string // whose documents and tasks it reaches; see CheckUserID
	Name   string // for people; may be empty
	Role   taskstate.Role
	Scopes Scopes        // the zero set stands for all
	Bases  []string      // ids or names of knowledge bases of its user that it is limited to; empty: it reaches all
	TTL    time.Duration // 0: it does not end by itself
	By     audit.Source  // who makes it, for the audit log
}

// validate returns what is wrong with the wish, wrapping ErrInvalidInput.
func (n NewKey) validate() error {
	if err := CheckUserID(n.UserID); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidInput, err)
	}
	switch {
	case n.UserID == taskstate.System().UserID:
		return fmt.Errorf("%w: the user id %q is the installation's own", ErrInvalidInput, n.UserID)
	case strings.ContainsFunc(n.Name, unicode.IsControl):
		return fmt.Errorf("%w: name must not have control characters", ErrInvalidInput)
	case !utf8.ValidString(n.Name) || utf8.RuneCountInString(n.Name) > maxName:
		return fmt.Errorf("%w: name has to be text of at most %d characters", ErrInvalidInput, maxName)
	case n.Role != taskstate.RoleUser && n.Role != taskstate.RoleOperator:
		return fmt.Errorf("%w: role %q is not user or operator", ErrInvalidInput, n.Role)
	case len(n.Bases) > maxBases:
		return fmt.Errorf("%w: a key is limited to at most %d knowledge bases, %d are named", ErrInvalidInput, maxBases, len(n.Bases))
	case len(n.Bases) > 0 && n.Role == taskstate.RoleOperator:
		return fmt.Errorf("%w: knowledge bases limit keys of the role user, and an operator's key reaches everybody's", ErrInvalidInput)
	case n.TTL < 0:
		return fmt.Errorf("%w: life time %s is negative", ErrInvalidInput, n.TTL)
	}
	return nil
}

// Key is a stored key without its secret; zero times stand for "never".
type Key struct {
	ID         string // UUIDv7
	UserID     string
	Name       string
	Role       taskstate.Role
	Scopes     Scopes
	Bases      []string // ids of the knowledge bases that it is limited to; nil: none
	Shown      string   // its first 12 characters
	CreatedAt  time.Time
	ExpiresAt  time.Time
	RevokedAt  time.Time
	LastUsedAt time.Time // to the minute
}

// Keys keeps API keys in the table api_key and checks them. It is safe for concurrent use; Run must run for last_used_at.
type Keys struct {
	db    sqldb.DB
	q     sqldb.Queries
	audit *audit.Log
	log   *slog.Logger
	now   func() time.Time
	cache *cache
	used  *usage
	// lookups are those that go on.
	lookups *batcher.Batcher[*lookup]
}

// New makes Keys over a database; now nil is time.Now.
func New(db sqldb.DB, log *slog.Logger, now func() time.Time) *Keys {
	if now == nil {
		now = time.Now
	}
	k := &Keys{
		db: db, q: sqldb.MustLoad(queries, "queries", db.Dialect()), audit: audit.New(db, log), log: log, now: now,
		cache: newCache(), used: newUsage(),
	}
	k.lookups = batcher.New(batcher.Config{Workers: 2, Most: lookMost, MaxWait: lookWait}, k.lookAll)
	return k
}

// Create makes a key for somebody and notes who did it. The secret is answered here and nowhere else again.
// Errors: ErrInvalidInput, the database's.
func (k *Keys) Create(ctx context.Context, in NewKey) (secret string, key Key, err error) {
	secret = NewSecret()
	key, err = k.insert(ctx, secret, in)
	return secret, key, err
}

// Ensure stores a secret that an operator chose elsewhere (the first key of an installation), unless it is known already.
// It must have the form of a key. Errors: ErrInvalidKey, ErrInvalidInput, the database's.
func (k *Keys) Ensure(ctx context.Context, secret string, in NewKey) error {
	if err := CheckShape(secret); err != nil {
		return err
	}
	sum := []string{digest(secret)}
	known, _, err := k.findAll(ctx, sum)
	if err != nil || len(known) > 0 {
		return err
	}
	if _, err = k.insert(ctx, secret, in); err != nil {
		if known, _, again := k.findAll(ctx, sum); again == nil && len(known) > 0 {
			return nil // another process was faster
		}
	}
	return err
}

// insert writes one row and its note.
func (k *Keys) insert(ctx context.Context, secret string, in NewKey) (Key, error) {
	if err := in.validate(); err != nil {
		return Key{}, err
	}
	if in.Scopes == (Scopes{}) {
		in.Scopes = AllScopes()
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Key{}, fmt.Errorf("make an id: %w", err)
	}
	key := Key{ID: id.String(), UserID: in.UserID, Name: in.Name, Role: in.Role, Scopes: in.Scopes, Shown: secret[:shownLen]}
	err = k.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		key.CreatedAt = m.Now.UTC().Truncate(time.Microsecond)
		var expires any
		if in.TTL > 0 {
			key.ExpiresAt = key.CreatedAt.Add(in.TTL).Truncate(time.Microsecond)
			expires = key.ExpiresAt
		}
		if err := k.findBases(ctx, tx, in, &key); err != nil {
			return err
		}
		detail := fmt.Sprintf("%s for %s, role %s, scopes %s", key.Shown, key.UserID, key.Role, key.Scopes)
		var bases any
		if key.Bases != nil {
			bases = strings.Join(key.Bases, " ")
			detail += fmt.Sprintf(", knowledge bases %s", bases)
		}
		_, err := tx.ExecContext(ctx, k.q.Get("KeyInsert"),
			key.ID, key.UserID, key.Name, string(key.Role), key.Scopes.String(), bases, digest(secret), key.Shown, key.CreatedAt, expires, nil)
		if err != nil {
			return err
		}
		return k.audit.Note(audit.Event{
			Action: audit.KeyCreate, Source: in.By, Target: key.ID, Detail: detail,
		})(ctx, tx, m)
	})
	if err != nil {
		return Key{}, fmt.Errorf("create API key %s: %w", key.Shown, err)
	}
	return key, nil
}

// findBases finds the knowledge bases that a new key is limited to. ErrInvalidInput names one that its user does not have.
func (k *Keys) findBases(ctx context.Context, tx taskstate.Tx, in NewKey, key *Key) error {
	key.Bases = nil
	for _, idOrName := range in.Bases {
		found, err := sqldb.Texts(ctx, tx, k.q.Get("KeyBase"), in.UserID, idOrName, idOrName)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%w: %s has no knowledge base %q", ErrInvalidInput, in.UserID, idOrName)
		}
		if id := strings.TrimSpace(found[0]); !slices.Contains(key.Bases, id) {
			key.Bases = append(key.Bases, id)
		}
	}
	return nil
}

// List pages through all keys, newest first; after is the last one of the page before, nil at the start.
func (k *Keys) List(ctx context.Context, after *Key, limit int) ([]Key, error) {
	name, args := "KeyList", []any{limit}
	if after != nil {
		at := after.CreatedAt.UTC()
		name, args = "KeyListAfter", []any{at, at, after.ID, limit}
	}
	var out []Key
	err := k.db.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		var err error
		out, err = sqldb.Collect(ctx, db, func(rows *sql.Rows) (Key, error) { return scanKey(rows) }, k.q.Get(name), args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	return out, nil
}

// Revoke ends a key for good and notes who did it; a revoked one stays as it is. Other processes follow within cacheTTL. ErrKeyNotFound.
func (k *Keys) Revoke(ctx context.Context, by audit.Source, id string) error {
	err := k.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		var found string
		err := tx.QueryRowContext(ctx, k.q.Get("KeyLock"), id).Scan(&found)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrKeyNotFound
		}
		if err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, k.q.Get("KeyRevoke"), m.Now.UTC().Truncate(time.Microsecond), id); err != nil {
			return err
		}
		return k.audit.Note(audit.Event{Action: audit.KeyRevoke, Source: by, Target: id})(ctx, tx, m)
	})
	if err != nil {
		return fmt.Errorf("revoke API key %s: %w", id, err)
	}
	k.cache.clear()
	return nil
}

// findAll reads the keys and sessions of some digests, with the database's clock. What is missing in the answer is none.
func (k *Keys) findAll(ctx context.Context, sums []string) (found map[string]Key, now time.Time, err error) {
	args := make([]any, len(sums))
	for i, sum := range sums {
		args[i] = sum
	}
	err = k.db.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		found = map[string]Key{}
		return sqldb.Each(ctx, db, func(rows *sql.Rows) error {
			var sum string
			var at taskstate.DBTime
			key, err := scanKey(rows, &sum, &at)
			found[sum], now = key, at.Time
			return err
		}, k.q.List("KeysFind", len(args)), args...)
	})
	if err != nil {
		err = fmt.Errorf("look up API keys: %w", err)
	}
	return found, now, err
}

// scanKey reads one row; the columns in extra stand before those of the key.
func scanKey(row interface{ Scan(...any) error }, extra ...any) (Key, error) {
	var key Key
	var created, expires, revoked, used taskstate.DBTime
	var scopes, bases string
	err := row.Scan(append(extra, &key.ID, &key.UserID, &key.Name, &key.Role, &scopes, &bases, &key.Shown, &created, &expires, &revoked, &used)...)
	key.Scopes = stored(scopes)
	if bases != "" {
		key.Bases = strings.Fields(bases)
	}
	key.CreatedAt, key.ExpiresAt, key.RevokedAt, key.LastUsedAt = created.Time, expires.Time, revoked.Time, used.Time
	return key, err
}
