package taskstate

import "time"

// Promise decides on a QUEUED row that the horizon sweep found (design D5).
// horizon is H: every entry before it was read. A row whose wake time is not older than H − slack is kept.
func Promise(p Policy, m Moment, t Task, horizon time.Time) Decision {
	if t.Status != StatusQueued || t.Reserved(m.Now) || !t.WakeAt.Before(horizon.Add(-p.Slack)) {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.PromiseCount = true, t.PromiseCount+1
	c.LeaseOwner, c.Lease = "", Never()
	c.Promise, c.Wake = In(0), In(promiseDelay(c.PromiseCount, p.Slack))
	return decide(AnswerApplied, c)
}

// Renew notes that a QUEUED row's delivery is about to be copied (PEL settling, design D4).
func Renew(p Policy, m Moment, t Task) Decision {
	if t.Status != StatusQueued || t.Reserved(m.Now) {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.LeaseOwner, c.Lease = true, "", Never()
	c.Promise, c.Wake = In(0), In(promiseDelay(c.PromiseCount, p.Slack))
	return decide(AnswerApplied, c)
}

// MarkDLQ notes that the DLQ entry of this very death was written; another fence, timeline or state keeps the row (design D11).
func MarkDLQ(m Moment, t Task, token Token) Decision {
	if t.Status != StatusDead || t.Fence != token.Fence || m.Timeline != token.Timeline || t.DLQ != DLQOwed {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.DLQ, c.Wake = true, DLQWritten, Never()
	return decide(AnswerApplied, c)
}
