package dlq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	bulkBatch  = 50               // dead letters of one transaction
	bulkBudget = 15 * time.Second // after which a call hands out a cursor: it stays below what proxies allow
)

// Bulk bounds one call on many dead letters. Call again with Result.Next until it is nil.
type Bulk struct {
	After     *Cursor // nil: from the newest dead letter on
	Limit     int     // dead letters to look at, at least 1
	PerSecond int     // replays a second, at least 1
	DryRun    bool    // only count
}

// Result is what one call did, or with DryRun would do.
type Result struct {
	Done    int            // replayed, or dropped
	Skipped map[Reason]int // dead letters that cannot be replayed, by reason
	Failed  int            // of the last batch, for want of a database or queue; they are tried again from Next on
	Err     error          // the first failure
	Next    *Cursor        // nil: every dead letter that the query chooses was looked at
}

// ReplayAll replays the dead letters that q chooses, from the newest to the oldest, at most b.PerSecond a second and b.Limit in one
// call. What was replayed is not replayed again, however often it is called. Letters that come meanwhile are left alone.
// Errors: as List, when nothing was done; a failure later on is told in the Result.
func (d *Service) ReplayAll(ctx context.Context, c ingest.Caller, q Query, b Bulk) (Result, error) {
	deadLetters, next, err := d.scan(ctx, q, b.After, b.Limit)
	r := Result{Skipped: map[Reason]int{}, Next: next}
	if err != nil {
		return r, err
	}
	if b.DryRun {
		err := d.judge(ctx, deadLetters)
		for _, l := range deadLetters {
			r.count(l.Reason)
		}
		return r, err
	}
	pace := pacer{now: d.d.Now, wait: d.d.Wait, began: d.d.Now(), perSecond: b.PerSecond}
	tried, after := 0, b.After
	for batch := range slices.Chunk(deadLetters, min(bulkBatch, b.PerSecond)) {
		if over, err := pace.next(ctx, tried); over || err != nil {
			if over {
				r.Next = after
			}
			return r, err
		}
		if err := d.replayBatch(ctx, c, batch, &r); err != nil {
			if tried == 0 {
				return r, err
			}
			r.Failed, r.Err, r.Next = r.Failed+len(batch), err, after
			return r, nil
		}
		tried, after = tried+len(batch), &batch[len(batch)-1].at
	}
	return r, nil
}

// pacer holds the replays of one call to their rate and their time.
type pacer struct {
	now       func() time.Time
	wait      func(ctx context.Context, d time.Duration) error
	began     time.Time
	perSecond int
}

// next waits until another replay may come after n; over: the call has no time left for it.
func (p pacer) next(ctx context.Context, n int) (over bool, err error) {
	since := p.now().Sub(p.began)
	ahead := time.Duration(n)*time.Second/time.Duration(p.perSecond) - since
	if since+max(0, ahead) > bulkBudget {
		return true, nil
	}
	if ahead > 0 {
		err = p.wait(ctx, ahead)
	}
	return false, err
}

// count adds a dead letter that was replayed, or skipped for a reason.
func (r *Result) count(why Reason) {
	if why == "" {
		r.Done++
		return
	}
	r.Skipped[why]++
}

// replayBatch replays what can be read of one batch.
func (d *Service) replayBatch(ctx context.Context, c ingest.Caller, batch []DeadLetter, r *Result) error {
	readable := slices.DeleteFunc(slices.Clone(batch), func(l DeadLetter) bool { return l.Raw != nil })
	if raw := len(batch) - len(readable); raw > 0 {
		r.Skipped[ReasonUnreadable] += raw
	}
	if len(readable) == 0 {
		return nil
	}
	done, err := d.replay(ctx, c, readable)
	if err != nil {
		return err
	}
	for i, one := range done {
		why := reasonOf(one.err)
		switch {
		case one.err != nil && why == "":
			r.Failed++
			if r.Err == nil {
				r.Err = one.err
			}
		case one.err == nil && !first(readable, i):
			r.Skipped[ReasonState]++ // a second entry of the same death: one replay served both
		default:
			r.count(why)
		}
	}
	return nil
}

// first reports whether no dead letter before i is of the same death.
func first(deadLetters []DeadLetter, i int) bool {
	return !slices.ContainsFunc(deadLetters[:i], func(l DeadLetter) bool {
		return l.TaskID == deadLetters[i].TaskID && l.Fence == deadLetters[i].Fence
	})
}

// NoteFunc writes into the audit log that a dead letter is dropped; nil: nothing is noted.
type NoteFunc func(l DeadLetter) taskstate.TxFunc

// Drop removes one entry for good; its row stays as it is.
// Errors: ErrNotFound, ErrNoEntry (the dead letter is a row), taskstate.ErrUnavailable, ingestq.ErrUnavailable.
func (d *Service) Drop(ctx context.Context, note NoteFunc, id string) error {
	l, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if l.Source != SourceRedis && l.Raw == nil {
		return fmt.Errorf("drop %s: %w", id, ErrNoEntry)
	}
	_, err = d.drop(ctx, note, []DeadLetter{l})
	return err
}

// DropAll removes the entries that q chooses, at most b.Limit in one call; of Kafka's dead letters those are the records that could
// not be read. Errors: as Drop.
func (d *Service) DropAll(ctx context.Context, note NoteFunc, q Query, b Bulk) (Result, error) {
	r := Result{Skipped: map[Reason]int{}}
	if q.Source == "" {
		q.Source = d.Default()
	}
	if q.Source == SourceTable || q.Source == SourceKafka && d.d.Raw == nil {
		return r, ErrNoEntry
	}
	q.droppable = true
	deadLetters, next, err := d.scan(ctx, q, b.After, b.Limit)
	if r.Next = next; err != nil || len(deadLetters) == 0 {
		return r, err
	}
	if b.DryRun {
		r.Done = len(deadLetters)
		return r, nil
	}
	n, err := d.drop(ctx, note, deadLetters)
	r.Done = int(n)
	return r, err
}

// drop notes first: an entry that is gone without a note would look like a loss.
func (d *Service) drop(ctx context.Context, note NoteFunc, deadLetters []DeadLetter) (int64, error) {
	if note != nil {
		err := d.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			for _, l := range deadLetters {
				if err := note(l)(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("note the drop of %d dead letters: %w", len(deadLetters), err)
		}
	}
	ids := make([]string, len(deadLetters))
	for i, l := range deadLetters {
		ids[i] = l.ID
	}
	if deadLetters[0].Source == SourceKafka { // a call drops of one source
		return d.d.Raw.Drop(ctx, ids...)
	}
	return d.d.Reader.Drop(ctx, ids...)
}
