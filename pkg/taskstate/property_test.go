package taskstate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// apply is a store in five lines: it writes a change at an instant.
func apply(t Task, c *Change, at time.Time) Task {
	set := func(d Delay, old time.Time) time.Time {
		switch d.Kind {
		case DelayNever:
			return time.Time{}
		case DelayIn, DelayLease:
			return at.Add(d.In)
		}
		return old
	}
	t.Status, t.Fence, t.AttemptCount, t.CrashCount, t.ThrottleCount = c.To, c.NewFence, c.AttemptCount, c.CrashCount, c.ThrottleCount
	t.NextRetryAt, t.WakeAt = set(c.NextRetry, t.NextRetryAt), set(c.Wake, t.WakeAt)
	t.EnqueuedAt, t.LeaseOwner, t.EnqueueCount = set(c.Enqueue, t.EnqueuedAt), c.LeaseOwner, c.EnqueueCount
	t.DLQ, t.Delivery, t.Progress, t.LastError, t.ErrorMessage = c.DLQ, c.Delivery, c.Progress, c.LastError, c.ErrorMessage
	return t
}

// world is one task with all tokens that were ever given out.
type world struct {
	r      *rand.Rand
	p      Policy
	m      DBClock
	task   Task
	tokens []Token
	newest int64 // fence of the last claim
	fails  int   // counted failures since the last restart
}

// step does one random act and returns what it was, its decision, and the token that it was done with.
func (w *world) step() (string, Decision, *Token) {
	token := Token{Epoch: w.m.Epoch - int64(w.r.IntN(4)/3), Fence: w.task.Fence}
	if len(w.tokens) > 0 && w.r.IntN(2) == 0 {
		token = w.tokens[w.r.IntN(len(w.tokens))]
	}
	h := Holder{Token: token, Actor: actor}
	process := fmt.Sprint("p", w.r.IntN(3))
	f := Failure{Permanent: w.r.IntN(6) == 0, Throttled: w.r.IntN(4) == 0, Stalled: w.r.IntN(4) == 0, RetryAfter: time.Duration(w.r.Int64N(int64(3 * time.Hour)))}
	switch w.r.IntN(16) {
	case 0, 1, 2, 3, 4:
		return "claim", Claim(w.p, w.m, w.task, ClaimRequest{
			Owner: fmt.Sprint(process, "/", w.r.IntN(100)), Process: process, Actor: actor,
			Takeover: w.r.IntN(2) == 0, Alone: w.r.IntN(2) == 0, Reserve: w.r.IntN(2) == 0, Mine: w.r.IntN(4) == 0, Held: w.r.IntN(4) == 0,
		}), nil
	case 5:
		return "succeed", Succeed(w.m, w.task, h, json.RawMessage(`{}`), ""), &token
	case 6, 7, 8:
		return "fail", Fail(w.p, w.m, w.task, h, f), &token
	case 9:
		return "hand back", HandBack(w.m, w.task, h, ""), &token
	case 10:
		return "suspend held", Fail(w.p, w.m, w.task, h, Failure{Suspend: true, Permanent: w.r.IntN(2) == 0, Throttled: w.r.IntN(2) == 0}), &token
	case 11:
		return "withdraw", Withdraw(w.m, w.task, h, ReasonSuperseded, ""), &token
	case 12:
		return w.person()
	case 13:
		return "promise", Enqueue(w.p, w.m, w.task, w.m.Now.Add(time.Duration(w.r.IntN(10))*time.Second)), nil
	case 14:
		return "mark", MarkDLQ(w.m, w.task, token), &token
	}
	return "release", Release(w.p, w.m, w.task, w.task.LeaseOwner), nil
}

// person is an operator's or user's act.
func (w *world) person() (string, Decision, *Token) {
	switch w.r.IntN(6) {
	case 0:
		return "cancel", Cancel(w.m, w.task, actor, ReasonCancelled, ""), nil
	case 1:
		return "suspend", Suspend(w.m, w.task, actor, ""), nil
	case 2:
		return "resume", Resume(w.m, w.task, actor, ""), nil
	case 3:
		return "replay", Replay(w.m, w.task, actor, ""), nil
	case 4:
		return "renew", Renew(w.p, w.m, w.task), nil
	}
	return "retry", Retry(w.m, w.task, actor), nil
}

// check returns what is wrong with one change.
func (w *world) check(act string, d Decision, token *Token) string {
	c := d.Change
	claimed := c.To == StatusRunning && !c.Silent
	restarted := c.Reason == ReasonReplayed || c.Reason == ReasonResumed
	failed := c.Reason == ReasonFailed || c.Reason == ReasonStalled || c.Reason == ReasonExhausted || c.Reason == ReasonPermanent
	switch {
	case token != nil && act != "mark" && (token.Fence != w.newest || token.Epoch != w.m.Epoch):
		return "a stale token was accepted"
	case c.From != w.task.Status || c.Fence != w.task.Fence:
		return "the change does not name the row"
	case c.Silent && c.To != c.From:
		return "a silent change of status"
	case !c.Silent && !Legal(c.From, c.To, c.Reason):
		return fmt.Sprintf("left the legal graph: %s to %s for %s", c.From, c.To, c.Reason)
	case claimed != (c.NewFence == w.task.Fence+1) || (!claimed && c.NewFence != w.task.Fence):
		return fmt.Sprintf("fence %d to %d at %s", w.task.Fence, c.NewFence, act)
	case restarted && c.AttemptCount != 0, !restarted && failed && c.AttemptCount != w.fails+1,
		!restarted && !failed && c.AttemptCount != w.fails:
		return fmt.Sprintf("attempts %d after %d failures at %s", c.AttemptCount, w.fails, act)
	case c.CrashCount != w.task.CrashCount && !restarted && c.Reason != ReasonTakeover && c.Reason != ReasonCrashLimit:
		return "a crash was counted at " + act
	case c.To == StatusRetrying && c.AttemptCount >= w.task.MaxAttempts:
		return "a retry although all attempts are used up"
	case c.To == StatusRunning && c.CrashCount >= w.p.MaxCrashes:
		return "runs beyond the crash limit"
	}
	return ""
}

func TestNoSequenceBreaksTheRules(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	acted := map[string]int{}
	for run := range 3000 {
		w := &world{
			r: rand.New(rand.NewPCG(seed, uint64(run))),
			p: Policy{BaseBackoff: time.Second, MaxBackoff: time.Minute, Lease: 10 * time.Second, MaxCrashes: 3, Slack: time.Second, DLQ: run%2 == 0},
			m: DBClock{Now: now, Epoch: 7},
		}
		w.task = Task{ID: "t", Status: StatusQueued, MaxAttempts: 1 + w.r.IntN(4), EnqueuedAt: now, WakeAt: now, DLQ: DLQNone}
		for step := range 60 {
			// Any clock: mostly forward, sometimes far, sometimes back; now and then another history.
			w.m.Now = w.m.Now.Add(time.Duration(w.r.Int64N(int64(8*time.Second))) - 2*time.Second)
			if w.r.IntN(10) == 0 {
				w.m.Now = w.m.Now.Add(time.Duration(w.r.Int64N(int64(2 * time.Hour))))
			}
			if w.r.IntN(100) == 0 {
				w.m.Epoch++
			}
			act, d, token := w.step()
			if d.Change == nil {
				continue
			}
			acted[act]++
			if wrong := w.check(act, d, token); wrong != "" {
				t.Fatalf("seed %d, run %d, step %d: %s: %s\nrow    %+v\nchange %+v", seed, run, step, act, wrong, w.task, d.Change)
			}
			w.follow(d)
		}
	}
	for _, act := range []string{
		"claim", "succeed", "fail", "hand back", "suspend held", "withdraw", "cancel", "suspend", "resume", "replay", "retry", "promise", "renew", "mark", "release",
	} {
		if acted[act] == 0 {
			t.Errorf("no %s was ever accepted: the test tries too little", act)
		}
	}
}

// follow writes the change and keeps the books.
func (w *world) follow(d Decision) {
	c := d.Change
	w.task = apply(w.task, c, w.m.Now)
	switch c.Reason {
	case ReasonFailed, ReasonStalled, ReasonExhausted, ReasonPermanent:
		w.fails++
	case ReasonReplayed, ReasonResumed:
		w.fails = 0
	case ReasonClaimed, ReasonTakeover:
		w.newest = c.NewFence
		w.tokens = append(w.tokens, Token{Epoch: w.m.Epoch, Fence: c.NewFence})
	}
}
