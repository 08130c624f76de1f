package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// viewScript replaces a ZSET in one step.
//
//	KEYS: the set
//	ARGV: score, member, …
var viewScript = rueidis.NewLuaScript(`
redis.call('DEL', KEYS[1])
for i = 1, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1])
end
return redis.status_reply('OK')`)

// WriteView replaces a ZSET for people and programs that look at Redis: its members are tasks, their scores times in ms since 1970.
// Nothing of ours reads it. Errors: ingestq.ErrUnavailable, ctx.Err().
func WriteView(ctx context.Context, client rueidis.Client, key string, of map[string]time.Time) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	args := make([]string, 0, 2*len(of))
	for id, at := range of {
		args = append(args, strconv.FormatInt(at.UnixMilli(), 10), id)
	}
	err := viewScript.Exec(call, client, []string{key}, args).Error()
	return failure(ctx, fmt.Sprintf("write %d tasks to %s", len(of), key), err)
}
