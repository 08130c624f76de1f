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
	limits []ratelimit.Limit
	take   *rueidis.Lua
}

// New makes a limiter whose keys begin with prefix, e.g. "ratelimit:upload:". A limit that does not validate panics.
func New(client rueidis.Client, prefix string, limits ...ratelimit.Limit) *Limiter {
	ratelimit.MustBe(limits)
	return &Limiter{client: client, prefix: prefix, limits: limits, take: rueidis.NewLuaScript(takeSource)}
}

// Spend asks Redis; its error is the client's.
func (l *Limiter) Spend(ctx context.Context, key string, most time.Duration, costs ...int64) (time.Duration, error) {
	args := []string{strconv.FormatInt(most.Microseconds(), 10)}
	for i, limit := range l.limits {
		for _, n := range []int64{int64(limit.Events), limit.Window.Microseconds(), costs[i]} {
			args = append(args, strconv.FormatInt(n, 10))
		}
	}
	wait, err := l.take.Exec(ctx, l.client, []string{l.bucketKey(key)}, args).AsInt64()
	if err != nil {
		return 0, fmt.Errorf("take from %s: %w", l.bucketKey(key), err)
	}
	return time.Duration(wait) * time.Microsecond, nil
}

// bucketKey is a STRING holding a time in microseconds for each limit; it lives until all events are back.
func (l *Limiter) bucketKey(key string) string { return l.prefix + key }
