package uploads

import (
	"context"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// A request of at most ClaimBytes that is received within ClaimAfter claims no key: it is received before anybody could
	// ask, and the accept looks for claims of others. A claim and its release cost the database as much as an upload.
	ClaimBytes = 1 << 20
	ClaimAfter = time.Second
)

// keyClaim is a request's claim of its idempotency key, from when it is due until the answer is known.
type keyClaim struct {
	key     string
	timer   *time.Timer   // nil: there is no key, or it was due at once
	done    chan struct{} // closed when the claim has ended, well or not, or none will be made
	release func()
	err     error
}

// claimKey claims the request's key: at once if it is long or of unknown length, else when it is still being received after
// ClaimAfter. Errors: those of BeginKey, when it was due at once.
func (g *Handler) claimKey(c *gin.Context, in *intake) (*keyClaim, error) {
	k := &keyClaim{key: in.key, done: make(chan struct{})}
	if in.key == "" {
		close(k.done)
		return k, nil
	}
	ctx := c.Request.Context() // a Context of gin is used again by another request
	begin := func() {
		defer close(k.done)
		k.release, k.err = g.beginKey(ctx, in)
	}
	if n := c.Request.ContentLength; n < 0 || n > ClaimBytes {
		begin()
		return k, k.err
	}
	k.timer = time.AfterFunc(ClaimAfter, begin)
	return k, nil
}

// beginKey is BeginKey with a panic as its error: it may run in a goroutine of its own.
func (g *Handler) beginKey(ctx context.Context, in *intake) (release func(), err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("claim idempotency key: panic: %v", p)
		}
	}()
	return g.Svc.BeginKey(ctx, in.who, in.key)
}

// stop lets no claim be made any more; false: one was made, is under way, or was never due.
func (k *keyClaim) stop() bool {
	if k.timer == nil || !k.timer.Stop() {
		return false
	}
	close(k.done)
	return true
}

// received tells that the whole request is there. unclaimed is its key if no claim was made, else empty; err is the claim's.
func (k *keyClaim) received() (unclaimed string, err error) {
	if k.stop() {
		return k.key, nil
	}
	<-k.done
	return "", k.err
}

// close gives the key back.
func (k *keyClaim) close() {
	k.stop()
	if <-k.done; k.release != nil {
		k.release()
	}
}
