package taskstate

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// ClaimRequest is one wish to run one task.
type ClaimRequest struct {
	Owner    string // "process/number of the call", unique per call; the process has at most 32 ASCII characters
	Process  string // the part of Owner that stays the same for the process
	Actor    Actor
	Delivery string // the message that brought it, at most 31 of the characters 0123456789-:k./; empty: the recovery loop
	Takeover bool   // an expired lease may be taken over (recovery loop only)
	Alone    bool   // the process holds no task and will take no other: isolated runs may run
	Reserve  bool   // reserve an isolated run when it may not run now
	Mine     bool   // the row is this process's own reservation: a RUNNING one is taken over although its lease lives
	Noun     string // what the task is about, for the words to its user: "document"; empty: "task"
	Held     bool   // the claim that the row names is this process's own and lives: its run goes on, whatever its lease says
}

// Claim decides on a wish to run t (contract §2, design D2, D6).
func Claim(p Policy, m DBClock, t Task, r ClaimRequest) Decision {
	switch t.Status {
	case StatusQueued:
	case StatusRetrying:
		if t.NextRetryAt.After(m.Now) {
			return leave(t, AnswerNotDue)
		}
	case StatusRunning:
		mine := r.Mine && ownerProcess(t.LeaseOwner) == r.Process
		if r.Held && !mine {
			return leave(t, AnswerBusy) // a takeover is by another: the holder's heartbeat revives the lease, or learns that it is lost
		}
		if !mine && (t.LeaseExpiresAt().After(m.Now) || !r.Takeover) {
			return leave(t, AnswerBusy)
		}
		return takeover(p, m, t, r)
	case StatusNone, StatusSucceeded, StatusDead, StatusSuspended, StatusCancelled:
		return leave(t, AnswerSkipped)
	}
	if t.Reserved(m.Now) && ownerProcess(t.LeaseOwner) != r.Process {
		return leave(t, AnswerBusy)
	}
	if !mayRun(p, t.CrashCount, r) {
		return reserve(p, m, t, r)
	}
	c := change(t, m).to(StatusRunning, ReasonClaimed, r.Actor, "")
	return hold(p, c, r)
}

// takeover decides on t, whose lease has expired: the crash limit, the isolated run, or a new holder.
func takeover(p Policy, m DBClock, t Task, r ClaimRequest) Decision {
	crashes := t.CrashCount + 1
	if crashes >= p.MaxCrashes {
		return decide(AnswerDead, crashLimit(p, m, t, r, crashes))
	}
	if !mayRun(p, crashes, r) {
		return reserve(p, m, t, r)
	}
	c := change(t, m).to(StatusRunning, ReasonTakeover, r.Actor, "lease expired")
	c.CrashCount = crashes
	return hold(p, c, r)
}

// CodeCrashLimit is the error code of a task that was set aside because it took its process down too often (contract §2).
const CodeCrashLimit = "CRASH_LIMIT"

// crashLimit ends a task that took its process down too often.
func crashLimit(p Policy, m DBClock, t Task, r ClaimRequest, crashes int) *Change {
	c := change(t, m).to(StatusDead, ReasonCrashLimit, r.Actor, "lease expired; its process ended or hung too often")
	c.CrashCount = crashes
	c.LastError = "the process that ran it ended or stopped answering " + strconv.Itoa(crashes) + " times"
	c.ErrorMessage = "This " + cmp.Or(r.Noun, "task") + " stopped its worker again and again; it was set aside."
	c.ErrorCode = CodeCrashLimit
	return owe(p, c)
}

// mayRun reports whether a task with so many crashes may run beside others, or the process is alone.
func mayRun(p Policy, crashes int, r ClaimRequest) bool {
	return r.Alone || crashes < p.MaxCrashes-1
}

// reserve keeps an isolated run for a process that will soon be alone; status, fence and audit stay.
func reserve(p Policy, m DBClock, t Task, r ClaimRequest) Decision {
	if !r.Reserve {
		return leave(t, AnswerIsolated)
	}
	c := change(t, m)
	c.Silent, c.Actor, c.LeaseOwner, c.Wake = true, r.Actor, r.Owner, In(p.Lease)
	if t.Status == StatusRunning {
		c.Wake = Lease(p.Lease)
	}
	return decide(AnswerReserved, c)
}

// hold completes a claim: fence + 1, the process's lease, the delivery that brought it.
func hold(p Policy, c *Change, r ClaimRequest) Decision {
	c.NewFence++
	c.LeaseOwner, c.Wake = r.Owner, Lease(p.Lease)
	c.EnqueueCount = 0
	if r.Delivery != "" {
		c.Delivery = r.Delivery
	}
	return decide(AnswerClaimed, c)
}

// Release drops a reservation of this process, named by its whole owner text: the row is as free as before.
func Release(p Policy, m DBClock, t Task, owner string) Decision {
	if t.LeaseOwner != owner {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.LeaseOwner = true, ""
	switch t.Status {
	case StatusQueued, StatusRetrying:
		c.Wake = wakeAsBefore(p, t, m.Now)
	case StatusRunning:
		c.Wake = In(0) // expired, as it was found
	case StatusNone, StatusSucceeded, StatusDead, StatusSuspended, StatusCancelled:
		return leave(t, AnswerKept)
	}
	return decide(AnswerApplied, c)
}

// Abandon gives up a claim, or a RUNNING task's reservation, of a process that lives and knows nothing of it any more: nobody would
// end it. It is taken over when the lease would have ended without another heartbeat.
func Abandon(m DBClock, t Task, held HeldTask) Decision {
	if t.Status != StatusRunning || t.Fence != held.Fence || t.LeaseOwner != held.Owner {
		return leave(t, AnswerKept)
	}
	c := change(t, m)
	c.Silent, c.LeaseOwner, c.Wake = true, "", In(t.WakeAt.Sub(m.Now))
	return decide(AnswerApplied, c)
}

// wakeAsBefore is the wake time of a QUEUED or RETRYING row without its reservation.
func wakeAsBefore(p Policy, t Task, now time.Time) Delay {
	if t.Status == StatusRetrying {
		return In(t.NextRetryAt.Sub(now))
	}
	return In(t.EnqueuedAt.Add(enqueueDelay(t.EnqueueCount, p.Slack)).Sub(now))
}

// ownerProcess is the part of a lease owner that names the process: what stands before the "/".
func ownerProcess(owner string) string {
	process, _, _ := strings.Cut(owner, "/")
	return process
}
