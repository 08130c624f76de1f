// Package embedded serves Redis in the own process, for `millweir dev` and for tests that need no real server.
//
// It keeps nothing on disk: after a restart the deliveries come back from the table (design D5), which is also why
// nothing more is needed. It is miniredis, a subset: no evidence for how Redis trims, counts lag or reclaims.
package embedded

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tick is how often keys with a TTL grow older: miniredis leaves that to its user.
// A key may end that much too early, for one that was just written grows older by a whole tick.
const tick = 100 * time.Millisecond

// Start serves on a free port of 127.0.0.1 and returns the REDIS_URL for it and a function that ends it,
// which may be called more than once. The URL says that the server is embedded, so that redisclient.New asks
// nothing of it that it does not have.
func Start() (url string, stop func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, fmt.Errorf("start embedded redis: %w", err)
	}
	done := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case now := <-ticker.C:
				server.FastForward(now.Sub(last))
				last = now
			case <-done:
				return
			}
		}
	})
	stop = sync.OnceFunc(func() {
		close(done)
		clock.Wait()
		server.Close()
	})
	return "redis://" + server.Addr() + "?embedded=true", stop, nil
}
