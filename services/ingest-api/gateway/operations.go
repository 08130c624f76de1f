package gateway

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	maxKeyName = 128
	maxKeyDays = 3650
)

func (g *Gateway) healthz(c *gin.Context) error {
	allowWrite(c)
	process.HealthHandler(c.Writer, c.Request)
	return nil
}

// readyz says whether requests should come here, and what is missing when not.
// What a dependency answered stays on OPERATOR_ADDR when this address is not for one person only.
func (g *Gateway) readyz(c *gin.Context) error {
	report := process.Report{Ready: true, Missing: []string{}, Checks: []process.CheckResult{}}
	if g.deps.Readiness != nil {
		report = g.deps.Readiness.Check(c.Request.Context())
	}
	if g.stopping() {
		report.Ready, report.Draining = false, true
	}
	if g.cfg.AuthMode != AuthNone {
		report.Checks = slices.Clone(report.Checks)
		for i := range report.Checks {
			report.Checks[i].Error, report.Checks[i].Warning = "", ""
		}
	}
	if !report.Ready {
		return writeJSON(c, http.StatusServiceUnavailable, report)
	}
	return writeJSON(c, http.StatusOK, report)
}

func (g *Gateway) serveMetrics(c *gin.Context) error {
	if g.deps.Metrics == nil {
		return &apiError{code: codeNotFound}
	}
	allowWrite(c)
	g.deps.Metrics.ServeHTTP(c.Writer, c.Request)
	return nil
}

// noKeys returns routes of keys where there are none.
func (g *Gateway) noKeys() error {
	if g.deps.Keys == nil {
		return problemf(codeNotFound, "this service keeps no API keys (AUTH_MODE=none)")
	}
	return nil
}

func (g *Gateway) listKeys(c *gin.Context) error {
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
	rows, err := g.deps.Keys.List(c.Request.Context(), from, limit+1)
	if err != nil {
		return err
	}
	next := func(k auth.Key) cursor { return timeCursor("keys", k.CreatedAt, k.ID) }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewKey, next))
}

func (g *Gateway) createKey(c *gin.Context) error {
	if err := g.noKeys(); err != nil {
		return err
	}
	in, err := readNewKey(c)
	if err != nil {
		return err
	}
	in.By = sourceOf(c)
	secret, key, err := g.deps.Keys.Create(c.Request.Context(), in)
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

func (g *Gateway) revokeKey(c *gin.Context) error {
	if err := g.noKeys(); err != nil {
		return err
	}
	id, ok := pathID(c, "keyId")
	if !ok {
		return auth.ErrKeyNotFound
	}
	if err := g.deps.Keys.Revoke(c.Request.Context(), sourceOf(c), id); err != nil {
		return err
	}
	g.logKey(c, "gateway: API key revoked", id, "")
	return noContent(c)
}

// logKey notes who made or ended a key.
func (g *Gateway) logKey(c *gin.Context, message, keyID, userID string) {
	r := requestOf(c)
	g.log.LogAttrs(c.Request.Context(), slog.LevelInfo, message,
		slog.String("key_id", keyID), slog.String("for_user", userID), slog.String("user_id", r.principal.UserID),
		slog.String("by_key_id", r.principal.KeyID), slog.String("request_id", r.id), slog.String("client", c.ClientIP()))
}
