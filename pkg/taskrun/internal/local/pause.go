package local

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/pause"
)

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
