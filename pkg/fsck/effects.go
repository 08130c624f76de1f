package fsck

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// skew is how far clocks of one machine's processes may be apart in what they write.
	skew = time.Second
	// commitLag is how long after a row's own time its COMMIT may come: the row has the time of the statement, and a
	// session that is silent for longer is ended (taskstore.Config.Silence).
	commitLag = 15 * time.Second
	// A run that is ended still has this long to commit what it paid for (ingest: the embedding cache's longest wait); a call that was
	// answered so shortly before the end may not have been committed.
	commitGrace = 5 * time.Second
	// ackSkew: the queue's clock reads after the commit.
	ackSkew = 2 * time.Millisecond
)

// readEffects reads what the embedding service was asked.
func (c *checker) readEffects(context.Context) error {
	if c.e.Effects == nil {
		c.notJudged("no log of effects", "I28")
		return nil
	}
	c.effects = map[string][]Effect{}
	return readLines(c.e.Effects, func(e Effect) error {
		if e.Task != "" {
			c.effects[e.Task] = append(c.effects[e.Task], e)
		}
		return nil
	})
}

// readAcks reads what was acknowledged.
func (c *checker) readAcks(context.Context) error {
	if c.e.Acks == nil {
		c.notJudged("no log of acknowledgements", "I17")
		return nil
	}
	c.acks = map[string][]Ack{}
	return readLines(c.e.Acks, func(a Ack) error {
		c.acks[a.ID] = append(c.acks[a.ID], a)
		return nil
	})
}

// judgeAcks is I17: between a claim and its outcome nobody but a script that looks first acknowledges its delivery.
func (c *checker) judgeAcks(t taskstate.Task, l *life) {
	for fence, k := range l.claims {
		for _, a := range c.acks[k.delivery] {
			if a.Script || a.At.Before(k.began) || c.lostBefore(k.delivery, a.At) {
				continue
			}
			early := k.ended.IsZero() || a.At.Add(ackSkew).Before(k.ended)
			c.verdict(!early, "I17", t.ID, "delivery %s was acknowledged at %s, the claim of fence %d that it brought ended at %s",
				k.delivery, stamp(a.At), fence, stamp(k.ended))
		}
	}
}

// lostBefore reports whether the queue lost the delivery before that time: reconciling acknowledges what is gone, whatever its row says.
func (c *checker) lostBefore(delivery string, at time.Time) bool {
	added := time.UnixMilli(millis(delivery))
	return slices.ContainsFunc(c.o.Flushes, func(flush time.Time) bool {
		return !added.After(flush) && flush.Add(-skew).Before(at)
	})
}

// judgePaid is I28, and I26 for calls: each paid batch of a task is excused by how the run before it ended.
func (c *checker) judgePaid(t taskstate.Task, l *life) {
	effects := c.effects[t.ID]
	delete(c.effects, t.ID)
	slices.SortStableFunc(effects, func(a, b Effect) int { return a.At.Compare(b.At) })
	last := map[string]Effect{} // by batch: the paid call before
	repaid := map[int64]int{}   // by fence of the run that had paid: batches that were paid again after a crash
	for _, e := range effects {
		k, known := l.claims[e.Fence]
		c.verdict(known && !e.At.Add(skew).Before(k.began), "I26", t.ID, "the embedding service was called at %s with fence %d, which the log does not know by then", stamp(e.At), e.Fence)
		if !e.Paid {
			continue
		}
		before, again := last[e.TextsHash]
		last[e.TextsHash] = e
		if !again {
			c.judged("I28")
			continue
		}
		why := c.excuse(before, e, l)
		c.verdict(why != "", "I28", t.ID, "batch %s of %d texts was paid at %s with fence %d and again at %s with fence %d",
			e.TextsHash, e.Texts, stamp(before.At), before.Fence, stamp(e.At), e.Fence)
		if why == excuseCrash {
			repaid[before.Fence]++
		}
	}
	for fence, n := range repaid {
		c.verdict(n <= c.o.InFlight, "I28", t.ID, "after the crash of fence %d %d batches were paid again, %d were in flight at most", fence, n, c.o.InFlight)
	}
}

// The excuses for a batch that was paid twice.
const (
	excuseReply = "its answer was lost"
	excuseCrash = "its run crashed"
	excuseEnd   = "its run ended in the middle"
)

// excuse says why a batch could be paid again, or nothing.
func (c *checker) excuse(before, again Effect, l *life) string {
	if before.Status != http.StatusOK || before.Spoiled || c.o.RepliesLost {
		return excuseReply
	}
	k := l.claims[before.Fence]
	if before.Fence == again.Fence || k.ended.IsZero() {
		return ""
	}
	if k.how == taskstate.ReasonTakeover || k.how == taskstate.ReasonCrashLimit {
		return excuseCrash
	}
	if k.ended.Sub(before.At) < commitGrace {
		return excuseEnd
	}
	return ""
}

// judgeStrangers is I26 for calls that name no task of the table.
func (c *checker) judgeStrangers() {
	for id, calls := range c.effects {
		c.verdict(false, "I26", id, "the embedding service was called %d times for it, and it is not in the table", len(calls))
	}
}
