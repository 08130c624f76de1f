package fsck

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// deadLetterState is what is known of the dead letter of one death.
type deadLetterState struct {
	needed bool // the row stands in this death, and its dead letter was written or must have been
	seen   bool
	died   time.Time // not before the death, and before its dead letter was written
}

// judgeDeath is the part of I18 that a row tells.
func (c *checker) judgeDeath(ctx context.Context, t taskstate.Task) error {
	if c.e.Queue == nil || !c.o.DLQ || t.Status != taskstate.StatusDead {
		return nil
	}
	s := &deadLetterState{died: t.UpdatedAt}
	c.deadLetters[death{t.ID, t.Fence}] = s
	if c.queue.Commits && t.DLQ != taskstate.DLQOwed {
		return c.judgeSent(ctx, t, s)
	}
	switch t.DLQ {
	case taskstate.DLQOwed:
		overdue := c.now.Sub(t.WakeAt) - c.o.Patience
		c.verdict(overdue <= 0 && !c.o.Rest, "I18", t.ID, "its dead letter is owed since %s", stamp(t.UpdatedAt))
	case taskstate.DLQNone:
		if t.UpdatedAt.After(c.o.Since) {
			sent, err := c.byOutbox(ctx, t)
			if err != nil {
				return err
			}
			c.verdict(sent, "I18", t.ID, "it is DEAD and owes no dead letter")
		}
	case taskstate.DLQWritten:
		r, err := c.transportOf(ctx, t.ID)
		if err != nil {
			return err
		}
		s.needed = r.deadLetters[t.Fence] == "" // an owed one may have become an event
		for _, at := range c.o.Flushes {
			s.needed = s.needed && t.UpdatedAt.After(at) // lost with the queue; the row stays the truth
		}
	}
	return nil
}

// judgeSent is judgeDeath on Kafka: the dead letter is an event of the death's own transaction. One that is not SENT is owed, which
// L3 watches; after retention took a SENT one, the record alone is left. Without an event, a death that came by the other transport
// has its dead letter there.
func (c *checker) judgeSent(ctx context.Context, t taskstate.Task, s *deadLetterState) error {
	r, err := c.transportOf(ctx, t.ID)
	if err != nil {
		return err
	}
	switch status := r.deadLetters[t.Fence]; {
	case status == "SENT":
		s.needed = true
	case status != "":
		c.judged("I18")
	case t.DLQ == taskstate.DLQNone && strings.HasPrefix(t.Delivery, recordPrefix):
		s.needed = t.UpdatedAt.After(c.o.Since)
	}
	return nil
}

// judgeDeadLetters is I18: each standing death has its dead letter, each dead letter a death.
func (c *checker) judgeDeadLetters(ctx context.Context) error {
	if c.e.Queue == nil {
		return nil
	}
	if !c.o.DLQ {
		c.tally.NotJudged("I18", "the dead letter stream is off")
		return nil
	}
	err := c.e.Queue.DeadLetters(ctx, func(l ingestq.WrittenDeadLetter) error {
		if l.TaskID == "" {
			return nil // raw bytes, kept as they came
		}
		s := c.deadLetters[death{l.TaskID, l.Fence}]
		if s != nil {
			s.seen = true
		}
		if !c.o.History {
			return nil
		}
		died := s != nil
		if !died { // perhaps since its log was read: work goes on
			var n int
			if err := c.db.QueryRowContext(ctx, c.q.Get("Deaths"), l.TaskID, l.Fence).Scan(&n); err != nil {
				return fmt.Errorf("look for the death of task %s: %w", l.TaskID, err)
			}
			died = n > 0
		}
		c.verdict(died, "I18", l.TaskID, "dead letter %s names fence %d, with which it never died", l.ID, l.Fence)
		return nil
	})
	if err != nil {
		return err
	}
	var border time.Time // letters of deaths up to then may be gone
	if c.queue.Commits {
		again, err := c.e.Queue.Look(ctx)
		if err != nil {
			return err
		}
		border = again.DeadLettersFrom.Add(skew)
	}
	for at, s := range c.deadLetters {
		if s.needed && s.died.After(border) {
			if !s.seen {
				if s.seen, err = c.excused(ctx, at); err != nil {
					return err
				}
			}
			c.verdict(s.seen, "I18", at.task, "it is DEAD with fence %d, its dead letter was written, and there is none", at.fence)
		}
	}
	c.deadLetters = nil
	return nil
}

// excused reports why the dead letter of a death may be gone: an operator dropped it, which the audit log tells by the name that
// dlq.RowID gives, or has replayed the task since its row was read.
func (c *checker) excused(ctx context.Context, at death) (bool, error) {
	var n int
	err := c.db.QueryRowContext(ctx, c.q.Get("LettersDropped"), at.task+"-"+strconv.FormatInt(at.fence, 10)).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look for the drop of a dead letter of task %s: %w", at.task, err)
	}
	if n > 0 {
		return true, nil
	}
	rows, err := c.tasksByID(ctx, []string{at.task})
	return err == nil && (len(rows) == 0 || rows[0].Status != taskstate.StatusDead || rows[0].Fence != at.fence), err
}

// pendingPage is how many tasks of pending entries are asked for at once.
const pendingPage = 500

// judgeQueue is I19, I20, L4 and L5.
func (c *checker) judgeQueue(ctx context.Context) error {
	if c.queue == nil {
		return nil
	}
	if c.queue.Commits {
		return c.judgeOffsets(ctx)
	}
	c.tally.NotJudged("I21", "not the transport of Kafka")
	q := c.queue
	for _, g := range q.Groups {
		none := g.Given == "" || g.Given == "0-0"
		deleted := cmp.Or(g.Deleted, q.Deleted)
		c.verdict(none || deleted == "" || !idLess(g.Given, deleted), "I20", g.Name,
			"entry %s was removed, the group was given entries up to %s only", deleted, g.Given)
	}
	for _, p := range q.Pending {
		c.verdict(!p.Gone, "I20", p.Group, "entry %s is pending and was removed", p.ID)
		c.verdict(!p.Gone || !c.o.Rest, "I19", p.ID, "it is pending for %s and does not exist any more", p.Group)
	}
	if c.o.Rest {
		c.verdict(q.Watermark.IsZero(), "L5", "queue", "an entry of %s was given to nobody", stamp(q.Watermark))
	} else {
		c.tally.NotJudged("L5", "needs a world at rest")
	}
	return c.judgePending(ctx)
}

// judgePending compares pending entries with the rows that they name.
func (c *checker) judgePending(ctx context.Context) error {
	byTask := map[string]ingestq.Unacked{}
	var ids []string
	for _, p := range c.queue.Pending {
		if p.TaskID == "" {
			continue
		}
		if _, ok := byTask[p.TaskID]; !ok {
			ids = append(ids, p.TaskID)
		}
		byTask[p.TaskID] = p
	}
	finished := int64(0)
	for len(ids) > 0 {
		page := ids[:min(len(ids), pendingPage)]
		ids = ids[len(page):]
		rows, err := c.tasksByID(ctx, page)
		if err != nil {
			return err
		}
		known := map[string]taskstate.Task{}
		for _, t := range rows {
			known[t.ID] = t
		}
		for _, id := range page {
			t, ok := known[id]
			c.verdict(ok, "I19", id, "entry %s is pending and names no task", byTask[id].ID)
			if ok && t.Status.Terminal() && c.o.Rest {
				finished++
				c.bad("L4", id, "it is %s and entry %s is pending", t.Status, byTask[id].ID)
			}
		}
	}
	if !c.o.Rest {
		c.tally.NotJudged("L4", "needs a world at rest")
		return nil
	}
	counts, err := c.counts(ctx)
	if err != nil {
		return err
	}
	for status, n := range counts {
		if status.Terminal() {
			finished += n
		}
	}
	c.tally.Judged("L4", finished)
	return nil
}

// idLess compares ids of stream entries, ms-seq.
func idLess(a, b string) bool {
	am, as := idParts(a)
	bm, bs := idParts(b)
	return am < bm || (am == bm && as < bs)
}

// idParts reads ms-seq; what is not one counts as 0-0.
func idParts(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(left, 10, 64)
	seq, _ = strconv.ParseUint(right, 10, 64)
	return ms, seq
}
