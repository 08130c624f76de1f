// Package redislimit is the limiter that several processes share, one string a key in Redis.
package redislimit

import (
	"context"
	_ "embed" // the script
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ratelimit"
)

//go:embed lua/limit_take.lua
var takeSource string

// Limiter limits over Redis. The caller owns and closes the client.
type Limiter struct {
	client rueidis.Client
	prefix string
	limit  ratelimit.Limit
	take   *rueidis.Lua
}

// New makes a limiter whose keys begin with prefix, e.g. "ratelimit:upload:". A limit that does not validate panics.
func New(client rueidis.Client, prefix string, limit ratelimit.Limit) *Limiter {
	if err := limit.Validate(); err != nil {
		panic("redislimit: " + err.Error())
	}
	return &Limiter{client: client, prefix: prefix, limit: limit, take: rueidis.NewLuaScript(takeSource)}
}

// Take asks Redis; its error is the client's.
func (l *Limiter) Take(ctx context.Context, key string) (ratelimit.Result, error) {
	args := []string{
		strconv.FormatInt(l.limit.Step().Microseconds(), 10),
		strconv.FormatInt(l.limit.Window.Microseconds(), 10),
	}
	wait, err := l.take.Exec(ctx, l.client, []string{l.bucketKey(key)}, args).AsInt64()
	if err != nil {
		return ratelimit.Result{}, fmt.Errorf("take from %s: %w", l.bucketKey(key), err)
	}
	if wait > 0 {
		return ratelimit.Result{RetryAfter: time.Duration(wait) * time.Microsecond}, nil
	}
	return ratelimit.Result{Allowed: true}, nil
}

// bucketKey is a STRING holding a time in microseconds; it lives until all events are back, at most the window.
func (l *Limiter) bucketKey(key string) string { return l.prefix + key }
