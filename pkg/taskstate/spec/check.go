package spec

import (
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/spec/search"
)

// judge collects what one step is judged by.
type judge struct {
	m             *Model
	before, after *World
	op            Op
	res           Result
	found         []search.Violation
	judged        map[string]int // how often each rule had a say; nil: not counted
}

// Check judges one step by the rules, each written apart from the code that it judges.
func (m *Model) Check(before World, o Op, res Result, after World) []search.Violation {
	j := judge{m: m, before: &before, after: &after, op: o, res: res}
	j.all()
	return j.found
}

// all asks every rule.
func (j *judge) all() {
	for t := range j.m.cfg.Tasks {
		j.row(t)
	}
	j.log()
	j.holders()
	j.delivery()
	if j.m.cfg.Document {
		j.document()
	}
}

// must notes that rule has judged, and a violation unless ok.
func (j *judge) must(rule string, ok bool, format string, args ...any) {
	if j.judged != nil {
		j.judged[rule]++
	}
	if !ok {
		j.found = append(j.found, search.Violation{Rule: rule, Problem: fmt.Sprintf(format, args...)})
	}
}

// worker is the worker that does the step; ok is false when none does.
func (j *judge) worker() (x *Worker, ok bool) {
	if j.op.Proc >= numWorkers {
		return nil, false
	}
	return &j.before.Workers[j.op.Proc], true
}

// row judges what the step did to a row.
func (j *judge) row(t int) {
	b, a := &j.before.Rows[t], &j.after.Rows[t]
	if j.op.Kind == OpRestore && int(j.op.Task) == t {
		return // another history
	}
	logged := j.res.Task == t && j.res.Transition.To != ""
	if !logged && *a == *b {
		return
	}
	if a.State != stNone {
		want := Logged{State: a.State, Fence: a.Fence, Attempts: a.Attempts, Crashes: a.Crashes}
		j.must("I2", a.Log == want, "%s: the row says %+v, its last transition %+v", taskID(t), want, a.Log)
	}
	if !logged {
		j.must("I1", a.State == b.State, "%s went from %s to %s without a transition", taskID(t), name(b), name(a))
		j.must("I3", a.Fence == b.Fence, "%s: fence %d to %d without a transition", taskID(t), b.Fence, a.Fence)
		j.must("I7", a.Attempts == b.Attempts, "%s: an attempt counted without a transition", taskID(t))
		j.must("I8", a.Crashes == b.Crashes, "%s: a crash counted without a transition", taskID(t))
		j.lease(t, b, a)
		return
	}
	j.move(t, b, a)
	j.fence(t, b, a)
	j.counts(t, b, a)
	j.times(t, b, a)
	if b.State == stRunning {
		j.leave(t, b, a)
	}
}

// name is a row's state in words.
func name(r *Row) string {
	if r.State == stNone {
		return "nothing"
	}
	return string(statusOf[r.State])
}

// edge is one row of contract §2's table.
type edge struct {
	from, to State
	reason   taskstate.Reason
	by       string // first letters of the actors that may: w(orker) u(ser) o(perator)
}

// edges is contract §2's table, written down once more.
var edges = []edge{
	{stNone, stQueued, taskstate.ReasonAccepted, "uo"},
	{stQueued, stRunning, taskstate.ReasonClaimed, "w"},
	{stRetrying, stRunning, taskstate.ReasonClaimed, "w"},
	{stRunning, stRunning, taskstate.ReasonTakeover, "w"},
	{stRunning, stSucceeded, taskstate.ReasonDone, "w"},
	{stRunning, stRetrying, taskstate.ReasonFailed, "w"},
	{stRunning, stRetrying, taskstate.ReasonThrottled, "w"},
	{stRunning, stDead, taskstate.ReasonExhausted, "w"},
	{stRunning, stDead, taskstate.ReasonPermanent, "w"},
	{stRunning, stDead, taskstate.ReasonCrashLimit, "w"},
	{stRunning, stSuspended, taskstate.ReasonSuspended, "wo"},
	{stRunning, stCancelled, taskstate.ReasonSuperseded, "w"},
	{stRunning, stCancelled, taskstate.ReasonCancelled, "uo"},
	{stRunning, stQueued, taskstate.ReasonHandedBack, "w"},
	{stRetrying, stRetrying, taskstate.ReasonRetryNow, "uo"},
	{stQueued, stCancelled, taskstate.ReasonCancelled, "uo"},
	{stRetrying, stCancelled, taskstate.ReasonCancelled, "uo"},
	{stSuspended, stCancelled, taskstate.ReasonCancelled, "uo"},
	{stQueued, stSuspended, taskstate.ReasonSuspended, "o"},
	{stRetrying, stSuspended, taskstate.ReasonSuspended, "o"},
	{stSuspended, stQueued, taskstate.ReasonResumed, "o"},
	{stDead, stQueued, taskstate.ReasonReplayed, "uo"},
	{stCancelled, stQueued, taskstate.ReasonReplayed, "uo"},
}

// move is I1 and I11.
func (j *judge) move(t int, b, a *Row) {
	tr := &j.res.Transition
	from, to := stateOf(tr.From), stateOf(tr.To)
	j.must("I1", from == b.State && to == a.State, "%s went from %s to %s, its transition says %s to %s", taskID(t), name(b), name(a), tr.From, tr.To)
	legal := false
	for _, e := range edges {
		if e.from == from && e.to == to && e.reason == tr.Reason {
			for _, deadLetter := range e.by {
				legal = legal || deadLetter == rune(tr.Actor[0])
			}
		}
	}
	j.must("I1", legal, "%s: %s to %s, %s by %s, is in no row of the contract", taskID(t), tr.From, tr.To, tr.Reason, tr.Actor)
	switch b.State {
	case stSucceeded:
		j.must("I11", false, "%s left SUCCEEDED", taskID(t))
	case stDead, stCancelled:
		j.must("I11", a.State == stQueued && j.op.Proc == procAPI, "%s left %s by %s", taskID(t), name(b), j.op.Kind)
	case stNone, stQueued, stRunning, stRetrying, stSuspended:
	}
}

// fence is I3.
func (j *judge) fence(t int, b, a *Row) {
	want := b.Fence
	if a.State == stRunning {
		want++
	}
	j.must("I3", a.Fence == want, "%s: fence %d to %d at %s", taskID(t), b.Fence, a.Fence, j.op.Kind)
}

// counts are I7 and I8.
func (j *judge) counts(t int, b, a *Row) {
	attempts, crashes := b.Attempts, b.Crashes
	switch j.res.Transition.Reason {
	case taskstate.ReasonFailed, taskstate.ReasonExhausted, taskstate.ReasonPermanent:
		attempts++
	case taskstate.ReasonTakeover, taskstate.ReasonCrashLimit:
		crashes++
	case taskstate.ReasonReplayed, taskstate.ReasonResumed:
		attempts, crashes = 0, 0
	default:
	}
	reason := j.res.Transition.Reason
	j.must("I7", a.Attempts == attempts, "%s: %d attempts, want %d after %s", taskID(t), a.Attempts, attempts, reason)
	j.must("I7", int(a.Attempts) <= j.m.cfg.MaxAttempts, "%s: %d attempts of %d", taskID(t), a.Attempts, j.m.cfg.MaxAttempts)
	j.must("I8", a.Crashes == crashes, "%s: %d crashes, want %d after %s", taskID(t), a.Crashes, crashes, reason)
	limit := int(a.Crashes) >= j.m.cfg.MaxCrashes
	j.must("I8", limit == (reason == taskstate.ReasonCrashLimit) || a.State == stQueued, "%s: %s with %d crashes of %d", taskID(t), reason, a.Crashes, j.m.cfg.MaxCrashes)
	if reason == taskstate.ReasonFailed {
		j.must("I7", int(a.Attempts) < j.m.cfg.MaxAttempts, "%s waits for a retry after %d attempts of %d", taskID(t), a.Attempts, j.m.cfg.MaxAttempts)
	}
}

// times are I9 and I10.
func (j *judge) times(t int, b, a *Row) {
	c := j.res.Change
	if c == nil {
		return
	}
	switch c.Reason {
	case taskstate.ReasonFailed:
		want := min(j.m.policy.BaseBackoff<<(a.Attempts-1), j.m.policy.MaxBackoff)
		j.must("I9", c.NextRetry == taskstate.In(want), "%s waits %+v after attempt %d, want %s", taskID(t), c.NextRetry, a.Attempts, want)
	case taskstate.ReasonThrottled:
		j.must("I9", c.NextRetry.Kind == taskstate.DelayIn && c.NextRetry.In > 0, "%s waits %+v after a throttle", taskID(t), c.NextRetry)
	case taskstate.ReasonRetryNow:
		j.must("I9", c.NextRetry == taskstate.In(0), "%s is not due after retry now", taskID(t))
	default:
		j.must("I9", a.Due == ageNone, "%s has a next retry as %s", taskID(t), name(a))
	}
	if b.State == stRetrying && a.State == stRunning {
		j.must("I10", b.Due == agePast, "%s ran again before its time", taskID(t))
	}
}
