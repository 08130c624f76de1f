package apiclient

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/scripts/lab/await"
)

// retryPause is how long a client waits after an answer that it can do nothing with.
const retryPause = 50 * time.Millisecond

// Record is what came of a load. Read it after the load has ended.
type Record struct {
	mu       sync.Mutex
	Accepted map[string]Doc // by task id: answered with 2xx
	Maybe    []Doc          // sent at least once and never answered 2xx
	Unknown  int            // requests that broke off without an answer, also those that were repeated with success
	Busy     int            // answers with status 503
	Rude     int            // answers with status 503 without Retry-After
	// Conflicts are 409 answers to the repeat of a request that broke off: its document is in Maybe and not repeated.
	Conflicts int
	Other     map[int]int // other refusals by status; they are not repeated
}

// Load is a number of clients that upload one document after the other. A request without an answer is repeated
// with the same Idempotency-Key, as a careful client does.
type Load struct {
	Target  *Client
	Clients int
	First   int           // number of the first document
	Count   int           // documents in all; 0: until ctx ends
	Bytes   int           // size of one
	Every   time.Duration // least time between two documents of one client
	Base    string
}

// Run uploads until Count documents were sent or ctx ends.
func (l Load) Run(ctx context.Context) *Record {
	r := &Record{Accepted: map[string]Doc{}, Other: map[int]int{}}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range l.Clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if l.Count > 0 && n >= l.Count {
					return
				}
				d := Text(l.First+n, l.Bytes)
				d.Base = l.Base
				started := time.Now()
				l.send(ctx, r, d)
				if rest := l.Every - time.Since(started); rest > 0 {
					await.Pause(ctx, rest)
				}
			}
		})
	}
	wg.Wait()
	return r
}

// send repeats one document until it is known what became of it, or ctx ends.
func (l Load) send(ctx context.Context, r *Record, d Doc) {
	for {
		// Not ctx: a request under way at the end of the load is let finish, so that it is known.
		task, err := l.Target.Upload(context.WithoutCancel(ctx), d)
		again, pause := r.note(d, task, err)
		if !again {
			return
		}
		if !await.Pause(ctx, pause) {
			r.mu.Lock()
			r.Maybe = append(r.Maybe, d)
			r.mu.Unlock()
			return
		}
	}
}

// note writes an answer down and says whether and when to repeat.
func (r *Record) note(d Doc, t Task, err error) (again bool, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.Accepted[t.TaskID] = d
		return false, 0
	}
	var status *StatusError
	if !errors.As(err, &status) {
		r.Unknown++
		return true, retryPause
	}
	if status.Status == http.StatusServiceUnavailable {
		r.Busy++
		if status.RetryAfter == 0 {
			r.Rude++
		}
		return true, max(retryPause, min(status.RetryAfter, time.Second))
	}
	if status.Status == http.StatusConflict {
		// The key is still claimed by our own request that broke off; it is let go a while after its gateway died.
		r.Conflicts++
		r.Maybe = append(r.Maybe, d)
		return false, 0
	}
	r.Other[status.Status]++
	return false, 0
}

// Add makes r the sum of itself and another record.
func (r *Record) Add(o *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, d := range o.Accepted {
		r.Accepted[id] = d
	}
	for status, n := range o.Other {
		r.Other[status] += n
	}
	r.Maybe = append(r.Maybe, o.Maybe...)
	r.Unknown, r.Busy, r.Rude, r.Conflicts = r.Unknown+o.Unknown, r.Busy+o.Busy, r.Rude+o.Rude, r.Conflicts+o.Conflicts
}
