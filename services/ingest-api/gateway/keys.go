package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	maxKeyName = 128
	maxKeyDays = 3650
)

// noKeys returns routes of keys where there are none.
func (g *operators) noKeys() error {
	if g.keys == nil {
		return problemf(codeNotFound, "this service keeps no API keys (AUTH_MODE=none)")
	}
	return nil
}

func (g *operators) listKeys(c *gin.Context) error {
	if err := g.noKeys(); err != nil {
		return err
	}
	limit, after, err := pageParams(c, "keys")
	if err != nil {
		return err
	}
	var from *auth.Key
	if after != nil {
		from = &auth.Key{ID: after.id, CreatedAt: after.key().At}
	}
	rows, err := g.keys.List(c.Request.Context(), from, limit+1)
	if err != nil {
		return err
	}
	next := func(k auth.Key) cursor { return timeCursor("keys", k.CreatedAt, k.ID) }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewKey, next))
}

func (g *operators) createKey(c *gin.Context) error {
	if err := g.noKeys(); err != nil {
		return err
	}
	in, err := readNewKey(c)
	if err != nil {
		return err
	}
	in.By = sourceOf(c)
	secret, key, err := g.keys.Create(c.Request.Context(), in)
	if err != nil {
		return err
	}
	g.logKey(c, "gateway: API key created", key.ID, key.UserID)
	return writeJSON(c, http.StatusCreated, wire.CreatedKey{Key: viewKey(key), Secret: secret})
}

// readNewKey reads and checks the wish for a key.
func readNewKey(c *gin.Context) (auth.NewKey, error) {
	var body wire.NewKey
	if err := readJSON(c, &body, false); err != nil {
		return auth.NewKey{}, err
	}
	if err := auth.CheckUserID(body.UserID); err != nil { // as it stands: a trimmed id would be somebody else's
		code := codeInvalidField
		if utf8.RuneCountInString(body.UserID) > auth.MaxUserID {
			code = codeFieldTooLong
		}
		return auth.NewKey{}, problemf(code, "userId: %s", err).about("userId")
	}
	body.Name = strings.TrimSpace(body.Name)
	if err := checkLine("name", body.Name, maxKeyName); err != nil {
		return auth.NewKey{}, err
	}
	if body.Role == "" {
		body.Role = taskstate.RoleUser
	}
	if !slices.Contains([]taskstate.Role{taskstate.RoleUser, taskstate.RoleOperator}, body.Role) {
		return auth.NewKey{}, problemf(codeInvalidField, "role is %s, allowed are user and operator", shown(string(body.Role))).about("role")
	}
	scopes, err := auth.ParseScopes(body.Scopes...)
	if err != nil {
		return auth.NewKey{}, problemf(codeInvalidField, "scopes has something else than read and write").about("scopes")
	}
	if body.TTLDays < 0 || body.TTLDays > maxKeyDays {
		return auth.NewKey{}, problemf(codeInvalidField, "ttlDays is %d, allowed is 0 (no end) to %d", body.TTLDays, maxKeyDays).about("ttlDays")
	}
	return auth.NewKey{UserID: body.UserID, Name: body.Name, Role: body.Role, Scopes: scopes, TTL: time.Duration(body.TTLDays) * 24 * time.Hour}, nil
}

func (g *operators) revokeKey(c *gin.Context) error {
	if err := g.noKeys(); err != nil {
		return err
	}
	id, ok := pathID(c, "keyId")
	if !ok {
		return auth.ErrKeyNotFound
	}
	if err := g.keys.Revoke(c.Request.Context(), sourceOf(c), id); err != nil {
		return err
	}
	g.logKey(c, "gateway: API key revoked", id, "")
	return noContent(c)
}

// logKey notes who made or ended a key.
func (g *operators) logKey(c *gin.Context, message, keyID, userID string) {
	r := requestOf(c)
	g.log.LogAttrs(c.Request.Context(), slog.LevelInfo, message,
		slog.String("key_id", keyID), slog.String("for_user", userID), slog.String("user_id", r.principal.UserID),
		slog.String("by_key_id", r.principal.KeyID), slog.String("request_id", r.id), slog.String("client", c.ClientIP()))
}

// KeyAdmin manages API keys for operators; auth.Keys is one.
type KeyAdmin interface {
	// Create makes a key; secret is shown once. Errors: auth.ErrInvalidInput, taskstate.ErrUnavailable.
	Create(ctx context.Context, in auth.NewKey) (secret string, key auth.Key, err error)
	// List pages through all keys, newest first; after is the last one of the page before.
	List(ctx context.Context, after *auth.Key, limit int) ([]auth.Key, error)
	// Revoke ends a key for good and notes who did it; auth.ErrKeyNotFound.
	Revoke(ctx context.Context, by audit.Source, id string) error
}
