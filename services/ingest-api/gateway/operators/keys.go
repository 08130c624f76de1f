// Package operators has the routes of the outbox, of API keys and of the audit log.
package operators

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
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	maxKeyName = 128
	maxKeyDays = 3650
)

func (g *Handler) listKeys(c *gin.Context) error {
	return web.List(c, "keys", func(after *web.Cursor, most int) ([]auth.Key, error) {
		var last *auth.Key
		if after != nil {
			last = &auth.Key{ID: after.ID, CreatedAt: after.Key().At}
		}
		return g.Keys.List(c.Request.Context(), last, most)
	}, views.Key, func(k auth.Key) web.Cursor { return web.TimeCursor(k.CreatedAt, k.ID) })
}

func (g *Handler) createKey(c *gin.Context) error {
	in, err := readNewKey(c)
	if err != nil {
		return err
	}
	in.By = web.Source(c)
	secret, key, err := g.Keys.Create(c.Request.Context(), in)
	if err != nil {
		return err
	}
	g.logKey(c, "gateway: API key created", key.ID, key.UserID)
	return web.JSON(c, http.StatusCreated, wire.CreatedKey{Key: views.Key(key), Secret: secret})
}

// readNewKey reads and checks the wish for a key.
func readNewKey(c *gin.Context) (auth.NewKey, error) {
	var body wire.KeyRequest
	if err := web.ReadJSON(c, &body, false); err != nil {
		return auth.NewKey{}, err
	}
	if err := auth.CheckUserID(body.UserID); err != nil { // as it stands: a trimmed id would be somebody else's
		code := web.CodeInvalidField
		if utf8.RuneCountInString(body.UserID) > auth.MaxUserID {
			code = web.CodeFieldTooLong
		}
		return auth.NewKey{}, web.Errorf(code, "userId: %s", err).About("userId")
	}
	body.Name = strings.TrimSpace(body.Name)
	if err := ingest.CheckLine("name", body.Name, maxKeyName); err != nil {
		return auth.NewKey{}, err
	}
	if body.Role == "" {
		body.Role = taskstate.RoleUser
	}
	if !slices.Contains([]taskstate.Role{taskstate.RoleUser, taskstate.RoleOperator}, body.Role) {
		return auth.NewKey{}, web.Errorf(web.CodeInvalidField, "role is %s, allowed are user and operator", web.Shown(string(body.Role))).About("role")
	}
	scopes, err := auth.ParseScopes(body.Scopes...)
	if err != nil {
		return auth.NewKey{}, web.Errorf(web.CodeInvalidField, "scopes has something else than read, write, search, upload and status, or status beside another one").About("scopes")
	}
	if body.TTLDays < 0 || body.TTLDays > maxKeyDays {
		return auth.NewKey{}, web.Errorf(web.CodeInvalidField, "ttlDays is %d, allowed is 0 (no end) to %d", body.TTLDays, maxKeyDays).About("ttlDays")
	}
	return auth.NewKey{UserID: body.UserID, Name: body.Name, Role: body.Role, Scopes: scopes, Bases: body.Bases, TTL: time.Duration(body.TTLDays) * 24 * time.Hour}, nil
}

func (g *Handler) revokeKey(c *gin.Context, id string) error {
	if err := g.Keys.Revoke(c.Request.Context(), web.Source(c), id); err != nil {
		return err
	}
	g.logKey(c, "gateway: API key revoked", id, "")
	return web.NoContent(c, nil)
}

// logKey notes who made or ended a key.
func (g *Handler) logKey(c *gin.Context, message, keyID, userID string) {
	r := web.RequestOf(c)
	g.Log.LogAttrs(c.Request.Context(), slog.LevelInfo, message,
		slog.String("key_id", keyID), slog.String("for_user", userID), slog.String("user_id", r.Principal.UserID),
		slog.String("by_key_id", r.Principal.KeyID), slog.String("request_id", r.ID), slog.String("client", c.ClientIP()))
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

// listAudit shows the audit log to operators, the newest first.
func (g *Handler) listAudit(c *gin.Context) error {
	p := web.ParamsOf(c)
	q := audit.Query{Action: web.Word(p, "action", audit.Actions()), Actor: p.User("actor")}
	if p.Err() != nil {
		return p.Err()
	}
	return web.List(c, "audit", func(after *web.Cursor, most int) ([]audit.Event, error) {
		q.Before, q.Limit = after.Number(0), most
		return g.Trail.Log.List(c.Request.Context(), q)
	}, viewEvent, func(e audit.Event) web.Cursor { return web.Cursor{At: e.ID} })
}

func viewEvent(e audit.Event) wire.AuditEvent {
	s := e.Source
	return wire.AuditEvent{
		ID: views.ID(e.ID), At: wire.At(e.At), Action: string(e.Action), Actor: wire.NullText(s.Actor), Role: wire.NullText(s.Role),
		KeyID: wire.NullText(s.KeyID), IP: wire.NullText(s.IP), RequestID: wire.NullText(s.RequestID), Target: wire.NullText(e.Target),
		Detail: wire.NullText(e.Detail), Times: e.Times,
	}
}
