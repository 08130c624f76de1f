package taskstate

import "time"

// Enqueue decides on a QUEUED row that the read watermark sweep found (design D5).
// read watermark is H: every entry before it was read. A row whose wake time is not older than H − slack is kept.
func Enqueue(p Policy, m DBClock, t Task, watermark time.Time) Decision {
	if !overdue(p, m, t, watermark) {
		return leave(t, AnswerKept)
	}
	c := enqueueAgain(p, m, t)
	c.Deliver = true
	return decide(AnswerApplied, c)
}

// overdue reports whether the read watermark sweep has to judge t: promised so long ago that the queue was read beyond it.
func overdue(p Policy, m DBClock, t Task, watermark time.Time) bool {
	return t.Status == StatusQueued && !t.Reserved(m.Now) && t.WakeAt.Before(watermark.Add(-p.Slack))
}

// enqueueAgain moves a QUEUED row to the back of the sweep's order, further each time; an expired reservation ends.
func enqueueAgain(p Policy, m DBClock, t Task) *Change {
	c := change(t, m)
	c.Silent, c.EnqueueCount = true, t.EnqueueCount+1
	c.LeaseOwner = ""
	c.Enqueue, c.Wake = In(0), In(enqueueDelay(c.EnqueueCount, p.Slack))
	return c
}

// EventTrail is what the outbox knows about the deliveries of one task; the zero value: it has none.
type EventTrail struct {
	Waiting  bool      // one is NEW or RETRYING
	LastSent int64     // sequence number of the last one SENT; 0: none
	SentAt   time.Time // when that was acknowledged
	LastDead int64     // sequence number of the last one DEAD; 0: none
}

// lost reports whether none of the events can still bring its task.
// A DEAD one older than the last one sent belongs to an earlier promise and counts for nothing.
func (e EventTrail) lost(before time.Time) bool {
	if e.Waiting || e.LastDead > e.LastSent {
		return false
	}
	return e.LastSent == 0 || e.SentAt.Before(before)
}

// EnqueueEvent is Enqueue where deliveries are events of an outbox (design D5, Kafka): read watermark is H, the time of the first record
// that the group has not finished. A row whose delivery is not lost leaves the front of the sweep's order all the same.
func EnqueueEvent(p Policy, m DBClock, t Task, watermark time.Time, trail EventTrail) Decision {
	if !overdue(p, m, t, watermark) {
		return leave(t, AnswerKept)
	}
	c := enqueueAgain(p, m, t)
	switch {
	case trail.lost(watermark.Add(-p.Slack)):
		c.Deliver = true
	case !trail.Waiting && trail.LastDead <= trail.LastSent: // sent lately: that is the moment of its promise
		c.EnqueueCount = t.EnqueueCount
		enqueued := trail.SentAt.Sub(m.Now)
		c.Enqueue, c.Wake = In(enqueued), In(enqueued+enqueueDelay(c.EnqueueCount, p.Slack))
	}
	return decide(AnswerApplied, c)
}

// Renew notes that a QUEUED row's delivery is about to be copied (PEL reconciling, design D4).
func Renew(p Policy, m DBClock, t Task) Decision {
	if t.Status != StatusQueued || t.Reserved(m.Now) {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.LeaseOwner = true, ""
	c.Enqueue, c.Wake = In(0), In(enqueueDelay(c.EnqueueCount, p.Slack))
	c.Deliver = true
	return decide(AnswerApplied, c)
}

// MarkDLQ notes that the DLQ entry of this very death was written; another fence, timeline or state keeps the row (design D11).
func MarkDLQ(m DBClock, t Task, token Token) Decision {
	if t.Status != StatusDead || t.Fence != token.Fence || m.Epoch != token.Epoch || t.DLQ != DLQOwed {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.DLQ, c.Wake = true, DLQWritten, Never()
	return decide(AnswerApplied, c)
}

// SendDLQ turns an owed DLQ entry into an event of the outbox: the change asks for it, and is the mark (design D11).
func SendDLQ(m DBClock, t Task) Decision {
	d := MarkDLQ(m, t, Token{Epoch: m.Epoch, Fence: t.Fence})
	if d.Change != nil {
		d.Change.Deliver = true
	}
	return d
}

// OweDLQ turns the unsent event of a death with that fence into an owed DLQ entry (design D11); a sweep writes it at once.
func OweDLQ(m DBClock, t Task, fence int64) Decision {
	if t.Status != StatusDead || t.Fence != fence || t.DLQ == DLQOwed {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.DLQ, c.Wake = true, DLQOwed, In(0)
	return decide(AnswerApplied, c)
}
