package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// life is one task that random acts of the pure functions move on, with the log that a store would write.
type life struct {
	r      *rand.Rand
	policy taskstate.Policy
	moment taskstate.DBClock
	task   taskstate.Task
	tokens []claimed
	log    []taskstate.Transition
	// reserved is the owner text of the last reservation: only its process may take a live lease over (design D6)
	reserved string
}

// claimed is a token with the actor that it was given to.
type claimed struct {
	token taskstate.Token
	actor taskstate.Actor
}

// newLife begins with an acceptance.
func newLife(seed uint64) *life {
	l := &life{
		r:      rand.New(rand.NewPCG(seed, 1)),
		policy: taskstate.Policy{BaseBackoff: base, MaxBackoff: time.Minute, Lease: lease, MaxCrashes: limit, Slack: time.Second, DLQ: seed%2 == 0},
		moment: taskstate.DBClock{Now: start, Epoch: 7},
	}
	l.task = taskstate.Task{ID: "t", Status: queued, MaxAttempts: 1 + l.r.IntN(4), EnqueuedAt: start, WakeAt: start, DLQ: taskstate.DLQNone}
	l.write(&taskstate.Change{To: queued, Reason: taskstate.ReasonAccepted, Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}}, none)
	return l
}

// act is one random wish, by anybody who may have it; holders use any token that was ever given out.
func (l *life) act() taskstate.Decision {
	user := taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}
	operator := taskstate.Actor{Kind: taskstate.ActorOperator, Name: "o"}
	sweeper := taskstate.Actor{Kind: taskstate.ActorSystem, Name: "sweeper"}
	holder := taskstate.Holder{Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "nobody"}}
	if n := len(l.tokens); n > 0 {
		c := l.tokens[max(0, n-1-l.r.IntN(3))]
		holder = taskstate.Holder{Token: c.token, Actor: c.actor}
	}
	process := fmt.Sprint("p", l.r.IntN(3))
	worker := taskstate.Actor{Kind: taskstate.ActorWorker, Name: process}
	f := taskstate.Failure{Permanent: l.r.IntN(8) == 0, Throttled: l.r.IntN(4) == 0, Stalled: l.r.IntN(4) == 0, RetryAfter: time.Duration(l.r.Int64N(3*3600*1_000_000)) * time.Microsecond}
	switch l.r.IntN(18) {
	default:
		return taskstate.Claim(l.policy, l.moment, l.task, taskstate.ClaimRequest{
			Owner: fmt.Sprint(process, "/", l.r.IntN(100)), Process: process, Actor: worker,
			Takeover: l.r.IntN(2) == 0, Alone: l.r.IntN(2) == 0, Reserve: l.r.IntN(2) == 0,
			Mine: l.reserved != "" && l.task.LeaseOwner == l.reserved,
		})
	case 6, 7, 8:
		return taskstate.Fail(l.policy, l.moment, l.task, holder, f)
	case 9:
		return taskstate.HandBack(l.moment, l.task, holder, "")
	case 10:
		return taskstate.Fail(l.policy, l.moment, l.task, holder, taskstate.Failure{Suspend: true})
	case 11:
		return taskstate.Withdraw(l.moment, l.task, holder, taskstate.ReasonSuperseded, "")
	case 12:
		return taskstate.Cancel(l.moment, l.task, sweeper, taskstate.ReasonSuperseded, "")
	case 13:
		return taskstate.Cancel(l.moment, l.task, user, taskstate.ReasonCancelled, "")
	case 14:
		return taskstate.Suspend(l.moment, l.task, operator, "")
	case 15:
		return taskstate.Resume(l.moment, l.task, operator, "")
	case 16:
		return taskstate.Retry(l.moment, l.task, user)
	case 17:
		if l.r.IntN(20) == 0 {
			return taskstate.Succeed(l.moment, l.task, holder, nil, "")
		}
		if l.reserved == "" {
			return taskstate.Decision{}
		}
		return taskstate.Release(l.policy, l.moment, l.task, l.reserved)
	}
}

// write is a store in a few lines: the row, and its audit row with the row's own times.
func (l *life) write(c *taskstate.Change, from taskstate.Status) {
	set := func(d taskstate.Delay, old time.Time) time.Time {
		switch d.Kind {
		case taskstate.DelayNever:
			return time.Time{}
		case taskstate.DelayIn, taskstate.DelayLease:
			return l.moment.Now.Add(d.In)
		case taskstate.DelayKeep:
		}
		return old
	}
	t := &l.task
	t.Status, t.Fence, t.AttemptCount, t.CrashCount, t.ThrottleCount = c.To, c.NewFence, c.AttemptCount, c.CrashCount, c.ThrottleCount
	t.NextRetryAt, t.WakeAt = set(c.NextRetry, t.NextRetryAt), set(c.Wake, t.WakeAt)
	t.LeaseOwner, t.DLQ = c.LeaseOwner, c.DLQ
	if c.Silent {
		l.reserved = c.LeaseOwner
		return
	}
	l.reserved = ""
	l.log = append(l.log, taskstate.Transition{
		ID: int64(len(l.log) + 1), TaskID: "t", From: from, To: c.To, Reason: c.Reason, AttemptCount: t.AttemptCount, CrashCount: t.CrashCount,
		Fence: t.Fence, Epoch: l.moment.Epoch, Actor: c.Actor.String(), LeaseExpiresAt: t.LeaseExpiresAt(), NextRetryAt: t.NextRetryAt,
		CreatedAt: l.moment.Now,
	})
	if c.To == running {
		l.tokens = append(l.tokens, claimed{taskstate.Token{Epoch: l.moment.Epoch, Fence: t.Fence}, c.Actor})
	}
}

// live lets a task live for so many wishes, on a clock that only goes forward; a heartbeat now and then moves a lease.
func (l *life) live(wishes int) {
	for range wishes {
		l.moment.Now = l.moment.Now.Add(time.Duration(l.r.Int64N(8_000_000)) * time.Microsecond)
		switch l.r.IntN(40) {
		case 0:
			l.moment.Now = l.moment.Now.Add(2 * time.Hour)
		case 1:
			l.moment.Epoch++
			l.task.WakeAt = l.moment.Now
		case 2, 3, 4:
			if l.task.Status == running && l.task.LeaseExpiresAt().After(l.moment.Now) {
				l.task.WakeAt = l.moment.Now.Add(lease)
			}
		}
		if d := l.act(); d.Change != nil {
			l.write(d.Change, l.task.Status)
		}
	}
}

// check judges the log and returns its report.
func (l *life) check() Report {
	c := New(Options{Policy: &l.policy})
	for _, tr := range l.log {
		c.Add(tr)
	}
	c.Row(l.task)
	return c.Report()
}

func TestLogsOfThePureFunctionsKeepEveryRule(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	judged := map[string]int64{}
	for run := range uint64(2000) {
		l := newLife(seed + run)
		l.live(80)
		r := l.check()
		if err := r.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed+run, err)
		}
		for _, one := range r {
			judged[one.Rule] += one.Judged
		}
	}
	for _, rule := range Rules() {
		if judged[rule.ID] == 0 {
			t.Errorf("%s judged nothing", rule.ID)
		}
	}
}

func FuzzLogsOfThePureFunctions(f *testing.F) {
	f.Add(uint64(1), uint8(60))
	f.Fuzz(func(t *testing.T, seed uint64, wishes uint8) {
		l := newLife(seed)
		l.live(int(wishes))
		if err := l.check().Err(); err != nil {
			t.Fatal(err)
		}
	})
}
