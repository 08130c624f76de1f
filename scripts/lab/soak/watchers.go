package soak

import (
	"context"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
)

const (
	watchersMax = 48 // streams at a time
	watchOne    = 12 // every so many uploads are watched
	dropMax     = 3  // seconds after which a watcher may go and come back
	watchLimit  = 2 * time.Minute
)

// watch follows a task beside all else, if there is room: it goes and comes back, to either gateway.
func (a *actor) watch(ctx context.Context, task string) {
	select {
	case a.watchers <- struct{}{}:
	default:
		return
	}
	name := a.journal.watcher()
	random := a.random.Uint64()
	a.watching.Go(func() {
		defer func() { <-a.watchers }()
		ctx, cancel := context.WithTimeout(ctx, watchLimit)
		defer cancel()
		var last apiclient.Event
		for i := uint64(0); ctx.Err() == nil; i++ {
			client := a.user.clients[(random+i)%uint64(len(a.user.clients))]
			once, cancel := context.WithTimeout(ctx, time.Duration(1+(random>>8+i)%(dropMax*1000))*time.Millisecond)
			over, _ := client.Watch(once, task, last.ID, func(e apiclient.Event) bool { // a broken stream is resumed
				last = e
				a.journal.event(name, a.user.name, e)
				return true
			})
			cancel()
			if over || last.Status.Terminal() {
				return
			}
			await.Pause(ctx, tryPause)
		}
	})
}
