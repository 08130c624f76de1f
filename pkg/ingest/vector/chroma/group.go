package chroma

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// upsertCall is one caller's rows on their way through the lane.
type upsertCall struct {
	rows []ingest.Vector
	dim  int
	done chan error // gets one answer
}

// Upsert writes rows in requests of at most 400; see ingest.VectorStore.
// A failure may leave some batches written: the same call again completes it.
//
// Who waits for the lane is not idle: the one who gets it takes along what all others wait to write, in one request.
// Many small documents would else be written one request each, one after the other (measured: 30–60 a second).
func (s *Store) Upsert(ctx context.Context, base string, rows []ingest.Vector) error {
	if len(rows) == 0 {
		return nil
	}
	dim, err := vector.CheckRows(rows)
	if err != nil {
		return err
	}
	c := s.collection(base)
	call := &upsertCall{rows: rows, dim: dim, done: make(chan error, 1)}
	c.queue(call)
	for {
		select {
		case err := <-call.done:
			return err
		case <-ctx.Done():
			// A leader may be writing it now; then it is written although nobody waits, which an upsert allows.
			c.withdraw(call)
			return fmt.Errorf("wait for collection %s: %w", c.name, ctx.Err())
		case c.lane <- struct{}{}:
			if ctx.Err() == nil {
				runtime.Gosched() // callers that are about to ask come along: documents whose rows were committed together are
				s.lead(ctx, c)
			}
			if ctx.Err() != nil {
				c.withdraw(call) // while the lane is held: the next leader would write it for nobody
			}
			<-c.lane
		}
	}
}

// lead writes the calls at the head of the queue as one. The lane is held.
func (s *Store) lead(ctx context.Context, c *collection) {
	calls := c.take()
	if len(calls) == 0 {
		return
	}
	var rows []ingest.Vector
	for _, call := range calls {
		rows = append(rows, call.rows...)
	}
	err := s.failure(ctx, s.upsertAll(ctx, c, rows, calls[0].dim))
	switch {
	case ctx.Err() != nil && err != nil:
		c.putBack(calls) // the leader goes; it answers itself by its own context, the others go on
	case err != nil && len(calls) > 1 && ingest.AsFailure(err).Permanent:
		s.singly(ctx, c, calls) // so that what is refused fails alone
	default:
		for _, call := range calls {
			call.done <- err
		}
	}
}

// singly writes each call by itself.
func (s *Store) singly(ctx context.Context, c *collection, calls []*upsertCall) {
	for i, call := range calls {
		err := s.failure(ctx, s.upsertAll(ctx, c, call.rows, call.dim))
		if err != nil && ctx.Err() != nil {
			c.putBack(calls[i:])
			return
		}
		call.done <- err
	}
}

// upsertAll writes rows of one dimension in requests of a good size.
func (s *Store) upsertAll(ctx context.Context, c *collection, rows []ingest.Vector, dim int) error {
	rows = vector.LastWins(rows)
	for len(rows) > 0 {
		n := min(len(rows), c.room(dim))
		began := s.now()
		err := s.upsert(ctx, c, rows[:n])
		c.paced(n, s.now().Sub(began), err == nil)
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// room is how many rows one request takes now.
func (c *collection) room(dim int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(rowsPerBody(dim), c.most)
}

// paced notes how long a request of n rows took. A server that is slow, or was given up, gets half as many rows at a time,
// so that nobody waits long for one answer; full requests that are quick make them larger again.
func (c *collection) paced(n int, took time.Duration, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case took > slowWrite:
		c.most = max(leastRows, min(c.most, n)/2)
	case written && took < slowWrite/4 && n >= c.most:
		c.most = min(batchRows, 2*c.most)
	}
}

// queue adds a call at the end.
func (c *collection) queue(call *upsertCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, call)
}

// take removes calls from the head: at least one, and as many more of its dimension as fit into one request.
func (c *collection) take() []*upsertCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, rows := 0, 0
	for n < len(c.waiting) {
		call := c.waiting[n]
		if n > 0 && (call.dim != c.waiting[0].dim || rows+len(call.rows) > min(rowsPerBody(call.dim), c.most)) {
			break
		}
		n, rows = n+1, rows+len(call.rows)
	}
	calls := slices.Clone(c.waiting[:n])
	c.waiting = slices.Delete(c.waiting, 0, n)
	return calls
}

// putBack puts calls at the head again.
func (c *collection) putBack(calls []*upsertCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.Insert(c.waiting, 0, calls...)
}

// withdraw takes a call out of the queue; a call that a leader has taken is no longer in it.
func (c *collection) withdraw(call *upsertCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiting, call); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
}
