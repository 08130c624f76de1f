package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// maxBlocked bounds the networks that are blocked at once; beyond it those whose time is over go, then all.
const maxBlocked = 10_000

// guesses limits failed logins by the caller's network. A network that is over the limit is blocked until one attempt
// comes back: a wrong secret from there is told to wait. A valid one is let in all the same, so that nobody is locked out by a
// neighbour; look-ups that come at once share a statement (auth.Keys), so guesses stay cheap for the database however many come. A key has more than 200 random bits, so the limit protects the database, not the key.
//
// The limit is never lifted: while Redis is away each process counts for itself (ratelimit.Fallback).
type guesses struct {
	limiter ratelimit.Limiter // nil: no limit
	now     func() time.Time

	mu      sync.Mutex
	blocked map[string]time.Time // network → until when
}

// wait is how long a network is still blocked; 0: it is not.
func (g *guesses) wait(network string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.blocked[network].Sub(g.now()), 0)
}

// failed counts a failed login and returns how long the network is blocked by it; 0: it is not.
func (g *guesses) failed(ctx context.Context, network string) time.Duration {
	if g.limiter == nil {
		return 0
	}
	wait, err := g.limiter.Spend(ctx, network, 0, 1)
	if err != nil || wait == 0 {
		return 0 // the only error is that the caller went away
	}
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.blocked) >= maxBlocked {
		for name, until := range g.blocked {
			if !until.After(now) {
				delete(g.blocked, name)
			}
		}
		if len(g.blocked) >= maxBlocked {
			clear(g.blocked)
		}
	}
	g.blocked[network] = now.Add(wait)
	return wait
}

// login finds out who holds a secret, within the limit of failed logins.
func (g *Gateway) login(c *gin.Context, secret string) (auth.Principal, error) {
	from := web.Network(c.ClientIP())
	wait := g.guesses.wait(from)
	who, err := g.deps.Auth.Authenticate(c.Request.Context(), secret)
	if err == nil || !errors.Is(err, auth.ErrInvalidKey) {
		return who, err
	}
	return auth.Principal{}, g.guessed(c, wait, err)
}

// guessed counts a failed login and returns its error; wait is how long its network was blocked before.
func (g *Gateway) guessed(c *gin.Context, wait time.Duration, err error) error {
	from := web.Network(c.ClientIP())
	g.metrics.Logins.Inc()
	g.trail.Tried(audit.Event{Action: audit.LoginFailed, Source: audit.Source{IP: from, RequestID: web.RequestOf(c).ID}, Detail: taskstate.Shorten(err.Error(), 200)})
	if wait == 0 {
		wait = g.guesses.failed(c.Request.Context(), from)
	}
	if wait > 0 {
		return &web.Error{Code: web.CodeLoginLimited, RetryAfter: wait, Cause: err}
	}
	return err
}
