package local

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/pause"
)

// signal tells whoever waits of a change. A channel exists only while somebody waits, since most changes are news to nobody.
// Its owner's mutex guards it.
type signal struct{ waiting chan struct{} }

// ring wakes everybody who waits.
func (b *signal) ring() {
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}

// wait returns a channel that is closed at the next ring.
func (b *signal) wait() <-chan struct{} {
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

// Until waits until look says yes; look returns what is closed at the next change, too. It reports whether ctx goes on.
func Until(ctx context.Context, look func() (yes bool, changed <-chan struct{})) bool {
	for {
		yes, changed := look()
		if yes {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

const (
	// CallLimit bounds one call of the store or the queue.
	CallLimit  = 10 * time.Second
	retryFloor = 100 * time.Millisecond
	retryMax   = time.Second // so that work goes on soon after an outage
)

// Bounded bounds a call that must not be cut off by the end of ctx: a commit whose answer is not waited for is a claim nobody runs.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), CallLimit)
}

// Backoff is the growing pause of a loop that failed.
func Backoff() pause.Backoff { return pause.Backoff{First: retryFloor, Most: retryMax} }
