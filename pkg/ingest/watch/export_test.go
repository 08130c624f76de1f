package watch

import (
	"context"
	"time"
)

const Buffer = watchBuffer

func (r *Watches) SetEvery(d time.Duration) { r.every = d }
func (r *Watches) Every() time.Duration     { return r.every }

// Look looks at all watched tasks at once, and returns how many there are.
func (r *Watches) Look(ctx context.Context) int {
	r.mu.Lock()
	n := len(r.watchers)
	for _, set := range r.watchers {
		for w := range set {
			w.due = time.Time{}
		}
	}
	r.mu.Unlock()
	r.look(ctx)
	return n
}
