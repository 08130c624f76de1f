package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/auth/oidc"
	"github.com/millweir/millweir/services/ingest-api/gateway/console"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Sessions are the log-ins to the console; auth.Keys is one.
type Sessions interface {
	// OpenSession makes a session of a key. Errors: auth.ErrInvalidKey, taskstate.ErrUnavailable.
	OpenSession(ctx context.Context, by audit.Source, keyID string) (secret string, ends time.Time, err error)
	// AuthenticateSession returns who holds the secret of a session. Errors: auth.ErrInvalidKey, among them auth.ErrSessionEnded;
	// taskstate.ErrUnavailable.
	AuthenticateSession(ctx context.Context, secret string) (auth.Principal, error)
	// OpenLogin makes a session of a log-in at an identity provider. Errors: auth.ErrLoginUsed, auth.ErrInvalidInput,
	// taskstate.ErrUnavailable.
	OpenLogin(ctx context.Context, by audit.Source, in auth.Login) (secret string, ends time.Time, err error)
	// CloseSession ends a session; login reports whether it is one of OpenLogin.
	CloseSession(ctx context.Context, secret string) (login bool, err error)
}

// Provider is where people prove who they are; oidc.Provider is one.
type Provider interface {
	// Name is what people know it by.
	Name() string
	// Begin returns where a browser goes, and what it keeps for Finish. Errors: oidc.ErrUnavailable, oidc.ErrProvider.
	Begin(ctx context.Context, next string) (address, keep string, err error)
	// Finish judges what a browser comes back with. Errors: those of oidc.Provider.
	Finish(ctx context.Context, keep string, q url.Values) (oidc.Done, error)
	// EndSession returns where a browser goes to log out there too; empty: nowhere.
	EndSession(ctx context.Context) string
}

// sessionKey carries the secret of a session in the context of a request that the console makes of the API. Nothing from
// outside can set it: a session's cookie is no credential of the API.
type sessionKey struct{}

// newConsole makes the handler of the console's addresses, behind the same middleware as the API.
func (g *Gateway) newConsole() (http.Handler, error) {
	pages, err := console.New(console.Config{
		Open: g.cfg.AuthMode == AuthNone, FileBytes: g.cfg.UploadMaxBytes, RequestBytes: g.cfg.requestLimit() - formOverhead, Now: g.deps.Now,
		Log: g.log, Provider: g.providerName(),
	})
	if err != nil {
		return nil, err
	}
	e, err := g.bareEngine()
	if err != nil {
		return nil, err
	}
	serve := func(c *gin.Context) {
		web.AllowWrite(c)
		pages.Serve(c.Writer, c.Request, visit{g, c})
	}
	for _, path := range []string{console.Path, console.Path + "/*page"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			e.Handle(method, path, serve)
		}
	}
	return e, nil
}

// providerName is who people can log in with; empty: nobody but the holders of keys logs in.
func (g *Gateway) providerName() string {
	if g.deps.Provider == nil || g.deps.Sessions == nil {
		return ""
	}
	return g.deps.Provider.Name()
}

// split sends the console's addresses to the console and all others to the API.
func split(console http.Handler, path string, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/") {
			console.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// visit is the gateway's side of one request for the console.
type visit struct {
	g *Gateway
	c *gin.Context
}

// TLS reports whether the browser's connection is encrypted.
func (v visit) TLS() bool { return web.RequestOf(v.c).TLS }

// Prefix is the path that a proxy has taken away before ours, or empty.
func (v visit) Prefix() string { return web.RequestOf(v.c).Prefix }

// LogIn makes a session of an API key; a wrong one counts as a failed login.
func (v visit) LogIn(key string) (secret string, ends time.Time, err error) {
	if v.g.deps.Sessions == nil {
		return "", time.Time{}, v.refusal(web.Errorf(web.CodeNotFound, "this gateway has no sessions"))
	}
	who, err := v.g.login(v.c, key)
	if err != nil {
		return "", time.Time{}, v.refusal(err)
	}
	if who.KeyID == "" { // a token of another issuer
		return "", time.Time{}, v.refusal(web.Errorf(web.CodeUnauthenticated, "a session is made of an API key, and this is a token"))
	}
	web.RequestOf(v.c).Principal = who
	secret, ends, err = v.g.deps.Sessions.OpenSession(v.c.Request.Context(), web.Source(v.c), who.KeyID)
	return secret, ends, v.refusal(err)
}

// BeginLogin returns the identity provider's address for a log-in, and what the browser keeps until FinishLogin.
func (v visit) BeginLogin(next string) (address, keep string, err error) {
	if v.g.providerName() == "" {
		return "", "", v.refusal(web.Errorf(web.CodeNotFound, "this gateway has no identity provider"))
	}
	address, keep, err = v.g.deps.Provider.Begin(v.c.Request.Context(), next)
	return address, keep, v.refusal(err)
}

// FinishLogin makes a session of what the identity provider sent a browser back with. A code that the provider does not take
// counts as a failed login; codes from a network that is over the limit are tried one at a time.
func (v visit) FinishLogin(keep string, q url.Values) (secret, next string, err error) {
	if v.g.providerName() == "" {
		return "", "", v.refusal(web.Errorf(web.CodeNotFound, "this gateway has no identity provider"))
	}
	ctx := v.c.Request.Context()
	wait := v.g.guesses.wait(web.Network(v.c.ClientIP()))
	done := oidc.Done{}
	if err = inTurn(ctx, wait > 0, v.g.codes, func() (err error) {
		done, err = v.g.deps.Provider.Finish(ctx, keep, q)
		return err
	}); err != nil {
		if errors.Is(err, oidc.ErrCode) {
			err = v.g.guessed(v.c, wait, err)
		}
		return "", done.Next, v.refusal(err)
	}
	web.RequestOf(v.c).Principal = done.Principal
	in := auth.Login{Principal: done.Principal, Name: strings.TrimSpace(v.g.providerName() + " " + done.Shown), ID: done.ID}
	secret, _, err = v.g.deps.Sessions.OpenLogin(ctx, web.Source(v.c), in)
	return secret, done.Next, v.refusal(err)
}

// inTurn calls f, and when others have to wait for it, one at a time.
func inTurn(ctx context.Context, wait bool, turn chan struct{}, f func() error) error {
	if wait {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f()
}

// Who is who holds the secret of a session; with AUTH_MODE=none everybody is the operator.
func (v visit) Who(secret string) (auth.Principal, error) {
	if v.g.cfg.AuthMode == AuthNone {
		return auth.Local(), nil
	}
	who, err := v.g.session(v.c, secret)
	if err == nil {
		web.RequestOf(v.c).Principal = who
	}
	return who, v.refusal(err)
}

// LogOut ends a session. One of a log-in at the identity provider goes on there, if the provider has an address for it.
func (v visit) LogOut(secret string) (onward string, err error) {
	ctx := v.c.Request.Context()
	login, err := v.g.deps.Sessions.CloseSession(ctx, secret)
	if errors.Is(err, auth.ErrInvalidKey) {
		err = nil // it never was one
	}
	if err == nil && login && v.g.providerName() != "" {
		onward = v.g.deps.Provider.EndSession(ctx)
	}
	return onward, v.refusal(err)
}

// API has the gateway's own handler return a request of the console's, in the right of a session.
func (v visit) API(w http.ResponseWriter, r *http.Request, secret string) {
	r.Header.Set("X-Request-Id", web.RequestOf(v.c).ID)
	v.g.engine.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, secret)))
}

// refusal is an error as the API says it; nil stays nil.
func (v visit) refusal(err error) error {
	if err == nil {
		return nil
	}
	p := web.ProblemOf(web.Classify(err), web.RequestOf(v.c).ID)
	web.LogFailure(v.c, v.g.log, p, err)
	return &console.Refusal{Problem: p}
}

// session finds out who holds a session's secret, within the limit of failed logins. One that has ended is no guess. Look-ups for
// a network that is over the limit come one at a time, so guesses stay cheap for the database.
func (g *Gateway) session(c *gin.Context, secret string) (auth.Principal, error) {
	if g.deps.Sessions == nil || secret == "" {
		return auth.Principal{}, &web.Error{Code: web.CodeUnauthenticated}
	}
	ctx := c.Request.Context()
	wait := g.guesses.wait(web.Network(c.ClientIP()))
	var who auth.Principal
	err := inTurn(ctx, wait > 0, g.turn, func() (err error) {
		who, err = g.deps.Sessions.AuthenticateSession(ctx, secret)
		return err
	})
	if err == nil || !errors.Is(err, auth.ErrInvalidKey) || errors.Is(err, auth.ErrSessionEnded) {
		return who, err
	}
	return auth.Principal{}, g.guessed(c, wait, err)
}
