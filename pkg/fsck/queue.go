package fsck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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
//
// On Kafka the dead letter is an event of the death's own transaction. One that is not SENT is owed, which L3 watches; after
// retention took a SENT one, the record alone is left. Without an event, a death that came by the other transport has its
// dead letter there.
func (c *checker) judgeDeath(ctx context.Context, t taskstate.Task) error {
	if c.e.Queue == nil || !c.o.DLQ || t.Status != taskstate.StatusDead {
		return nil
	}
	s := &deadLetterState{died: t.UpdatedAt}
	c.deadLetters[death{t.ID, t.Fence}] = s
	if t.DLQ == taskstate.DLQOwed {
		overdue := c.now.Sub(t.WakeAt) - c.o.Patience
		c.verdict(overdue <= 0 && !c.o.Rest, "I18", t.ID, "its dead letter is owed since %s", stamp(t.UpdatedAt))
		return nil
	}
	byEvent, err := c.transportOf(ctx, t.ID)
	if err != nil {
		return err
	}
	event, ruled := byEvent.deadLetters[t.Fence], t.UpdatedAt.After(c.o.Since)
	record := strings.HasPrefix(t.Delivery, recordPrefix) // its event may be there no more
	switch {
	case c.queue.Commits && event == "SENT":
		s.needed = true
	case c.queue.Commits && event != "":
		c.judged("I18")
	case c.queue.Commits:
		s.needed = t.DLQ == taskstate.DLQNone && record && ruled
	case t.DLQ == taskstate.DLQWritten: // an owed one may have become an event; one lost with the queue is lost, the row stays the truth
		s.needed = event == "" && !slices.ContainsFunc(c.o.Flushes, func(flush time.Time) bool { return !t.UpdatedAt.After(flush) })
	case t.DLQ == taskstate.DLQNone && ruled:
		c.verdict(event != "" || record, "I18", t.ID, "it is DEAD and owes no dead letter")
	}
	return nil
}

// judgeDeadLetters is I18: each standing death has its dead letter, each dead letter a death.
func (c *checker) judgeDeadLetters(ctx context.Context) error {
	if c.e.Queue == nil {
		return nil
	}
	if !c.o.DLQ {
		c.notJudged("the dead letter stream is off", "I18")
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
			n, err := c.count(ctx, "Deaths", l.TaskID, l.Fence)
			if err != nil {
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
	var border time.Time // dead letters of deaths up to then may be gone
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
// dlq.RowID gives, or has replayed the task since its row was read; or the queue was lost between the letter and its mark in the row.
func (c *checker) excused(ctx context.Context, at death) (bool, error) {
	n, err := c.count(ctx, "LettersDropped", at.task+"-"+strconv.FormatInt(at.fence, 10))
	if err != nil {
		return false, fmt.Errorf("look for the drop of a dead letter of task %s: %w", at.task, err)
	}
	if n > 0 {
		return true, nil
	}
	if len(c.o.Flushes) > 0 {
		n, err := c.count(ctx, "DeathsBefore", at.task, at.fence, slices.MaxFunc(c.o.Flushes, time.Time.Compare))
		if err != nil || n > 0 {
			return n > 0, err
		}
	}
	rows, err := c.tasksByID(ctx, at.task)
	return err == nil && (len(rows) == 0 || rows[0].Status != taskstate.StatusDead || rows[0].Fence != at.fence), err
}

// readQueue looks at the queue, before the rows that its deliveries name are read.
func (c *checker) readQueue(ctx context.Context) error {
	if c.e.Queue == nil {
		c.notJudged("no queue to look at", "I15", "I18", "I19", "I20", "I21", "L4", "L5", "L6")
		return nil
	}
	state, err := c.e.Queue.Look(ctx)
	c.queue = &state
	return err
}

// judgeQueue is I19, I20, L4 and L5.
func (c *checker) judgeQueue(ctx context.Context) error {
	if c.queue == nil {
		return nil
	}
	if c.queue.Commits {
		return c.judgeOffsets(ctx)
	}
	c.notJudged("not the transport of Kafka", "I21")
	q := c.queue
	for _, g := range q.Groups {
		none := g.Given == "" || g.Given == "0-0"
		deleted := cmp.Or(g.Deleted, q.Deleted)
		c.verdict(none || deleted == "" || compareEntries(g.Given, deleted) >= 0, "I20", g.Name,
			"entry %s was removed, the group was given entries up to %s only", deleted, g.Given)
	}
	for _, p := range q.Pending {
		c.verdict(!p.Gone, "I20", p.Group, "entry %s is pending and was removed", p.ID)
		c.verdict(!p.Gone || !c.o.Rest, "I19", p.ID, "it is pending for %s and does not exist any more", p.Group)
	}
	if c.o.Rest {
		c.verdict(q.Watermark.IsZero(), "L5", "queue", "an entry of %s was given to nobody", stamp(q.Watermark))
	} else {
		c.notJudged("needs a world at rest", "L4", "L5")
	}
	return c.judgePending(ctx)
}

// judgePending compares pending entries with the rows that they name.
func (c *checker) judgePending(ctx context.Context) error {
	byTask := map[string]ingestq.Unacked{}
	for _, p := range c.queue.Pending {
		if p.TaskID != "" {
			byTask[p.TaskID] = p
		}
	}
	finished := int64(0)
	for page := range slices.Chunk(slices.Sorted(maps.Keys(byTask)), pageSize) {
		rows, err := c.tasksByID(ctx, page...)
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

// judgeOffsets is I21 and L5 where a group commits offsets. Any state of a row may stand below a committed offset (design D4:
// also NOT_DUE, BUSY, SOLO and SKIPPED let it move on), so rows say nothing of it; I15 finds what was finished too early.
func (c *checker) judgeOffsets(ctx context.Context) error {
	c.notJudged("Kafka keeps no list of pending deliveries, and its retention asks no group", "I19", "I20", "L4")
	again, err := c.e.Queue.Look(ctx)
	if err != nil {
		return err
	}
	for _, was := range c.queue.Parts {
		for _, is := range again.Parts {
			if is.Number == was.Number {
				c.judgePart(was, is)
			}
		}
	}
	switch {
	case !c.o.Rest:
		c.notJudged("needs a world at rest", "L5")
	case again.NoWatermark:
		c.notJudged("the log has no horizon", "L5")
	default:
		c.verdict(again.Watermark.IsZero(), "L5", "queue", "the group has not finished a record of %s", stamp(again.Watermark))
	}
	return nil
}

// judgePart compares two looks at a partition. An owner sets an offset beyond the log's end back to that end, one before its
// start to the start; a group that has been away for long has none any more.
func (c *checker) judgePart(was, is ingestq.Part) {
	about := "partition " + strconv.Itoa(int(was.Number))
	beyond := was.Committed > was.Newest
	c.verdict(!beyond || is.Committed <= is.Newest, "I21", about, "offset %d is committed, the log ends at %d: it was lost", is.Committed, is.Newest)
	fell := is.Committed >= 0 && is.Committed < was.Committed && was.Committed <= is.Newest
	c.verdict(beyond || !fell, "I21", about, "the committed offset fell from %d to %d", was.Committed, is.Committed)
}
