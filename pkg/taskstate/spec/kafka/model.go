package kafka

import (
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/spec"
	"github.com/millweir/millweir/pkg/taskstate/spec/search"
)

// Model is the world's laws. It is immutable and safe for concurrent use.
type Model struct {
	cfg    Config
	policy taskstate.Policy
}

const (
	maxAttempts = 2
	maxSends    = 2 // failed sendings after which an event is DEAD
)

// New makes a model.
func New(cfg Config) *Model {
	return &Model{cfg: cfg, policy: taskstate.Policy{
		BaseBackoff: tick, MaxBackoff: tick, Lease: tick, MaxCrashes: 9, Slack: modelSlack,
	}}
}

// Start is the world before anything happened.
func (m *Model) Start() World { return World{Left: m.cfg.Faults} }

func (m *Model) without(r Rule) bool { return m.cfg.Without&r != 0 }

// step is one step with what it led to; its Op is what happened, in words.
type step struct {
	search.Step[World, string]
}

// must notes a broken rule.
func (s *step) must(rule string, ok bool, format string, args ...any) {
	if !ok {
		s.Broken = append(s.Broken, search.Violation{Rule: rule, Problem: fmt.Sprintf(format, args...)})
	}
}

// task is the row as package taskstate reads it.
func (m *Model) task(r *Row, t int) taskstate.Task {
	out := taskstate.Task{
		ID: taskID(t), Status: statusOf[r.State], MaxAttempts: maxAttempts, AttemptCount: int(r.Attempts), CrashCount: int(r.Crashes),
		Fence: int64(r.Fence), DLQ: taskstate.DLQNone, EnqueuedAt: instant(r.Enqueued), EnqueueCount: int(r.Count),
	}
	out.WakeAt = out.EnqueuedAt.Add(modelSlack * ((1 << r.Count) - 1))
	switch r.State {
	case stRunning:
		out.LeaseOwner, out.WakeAt = "p/1", instant(1)
		if r.Expired {
			out.WakeAt = instant(-1)
		}
	case stRetrying:
		out.NextRetryAt = instant(1)
		if r.Due {
			out.NextRetryAt = instant(-1)
		}
	case stNone, stQueued, stSucceeded, stDead, stSuspended, stCancelled:
	}
	return out
}

func taskID(t int) string { return [...]string{"T1", "T2"}[t] }

// commit is one transaction on one row, with the event that belongs to it.
func (m *Model) commit(s *step, t int, d taskstate.Decision) {
	s.Op += ": " + string(d.Answer)
	if d.Change == nil {
		return
	}
	r := &s.World.Rows[t]
	after := spec.Write(m.task(r, t), d.Change, epoch)
	for i, status := range statusOf {
		if status == after.Status {
			r.State = State(i)
		}
	}
	r.Fence, r.Attempts, r.Crashes = uint8(after.Fence), uint8(after.AttemptCount), uint8(after.CrashCount)
	r.Expired, r.Due = false, r.State == stRetrying && !after.NextRetryAt.After(epoch)
	r.Enqueued, r.Count = age(after.EnqueuedAt.Sub(epoch)/tick), uint8(min(after.EnqueueCount, 1))
	if !d.Change.Silent {
		s.Op += fmt.Sprintf(", %s, fence %d", after.Status, r.Fence)
	}
	if !d.Change.Deliver {
		return
	}
	if m.without(EventInTransaction) {
		r.Owes = true
		return
	}
	s.write(t)
}

// write puts the event of a row into the outbox.
func (s *step) write(t int) {
	r := &s.World.Rows[t]
	e := Event{State: evNew, Task: uint8(t)}
	if r.State == stDead {
		e.DeadLetter, e.Fence = true, r.Fence
	}
	s.Op += " with an event"
	s.Full = s.Full || !s.World.addEvent(e)
}

// moment is the database's word on time.
func moment() taskstate.DBClock { return taskstate.DBClock{Now: epoch, Epoch: 1} }

// steps calls yield for each step that can be done in w.
func (m *Model) steps(w *World, yield func(s step)) {
	begin := func(fault bool, format string, args ...any) step {
		return step{search.Step[World, string]{World: *w, Fault: fault, Op: fmt.Sprintf(format, args...)}}
	}
	for t := range m.cfg.Tasks {
		m.rowSteps(w, t, begin, yield)
	}
	for i := range w.Consumers {
		m.consumerSteps(w, i, begin, yield)
	}
	for i := range m.cfg.Relays {
		m.relaySteps(w, i, begin, yield)
	}
	m.sweepSteps(w, begin, yield)
	m.brokerSteps(w, begin, yield)
}

// beginFunc starts a step.
type beginFunc = func(fault bool, format string, args ...any) step

// rowSteps are the API's, people's and the clock's.
func (m *Model) rowSteps(w *World, t int, begin beginFunc, yield func(s step)) {
	r := &w.Rows[t]
	user := taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}
	if r.State == stNone {
		if t == 0 || w.Rows[t-1].State != stNone {
			s := begin(false, "API: accept %s", taskID(t))
			s.World.Rows[t].State = stQueued
			if m.without(EventInTransaction) {
				s.World.Rows[t].Owes = true
			} else {
				s.write(t)
			}
			yield(s)
		}
		return
	}
	if r.Owes { // only without EventInTransaction
		s := begin(false, "the event of %s, after its commit", taskID(t))
		s.World.Rows[t].Owes = false
		s.write(t)
		yield(s)
		if w.Left.Crashes > 0 {
			s := begin(true, "CRASH before the event of %s", taskID(t))
			s.World.Left.Crashes--
			s.World.Rows[t].Owes = false
			yield(s)
		}
	}
	if w.Left.Cancels > 0 && !r.terminal() {
		s := begin(true, "user: cancel %s", taskID(t))
		s.World.Left.Cancels--
		m.commit(&s, t, taskstate.Cancel(moment(), m.task(r, t), user, taskstate.ReasonCancelled, ""))
		yield(s)
	}
	if w.Left.Replays > 0 && (r.State == stDead || r.State == stCancelled) && !r.Owes {
		s := begin(true, "user: replay %s", taskID(t))
		s.World.Left.Replays--
		m.commit(&s, t, taskstate.Replay(moment(), m.task(r, t), user, ""))
		yield(s)
	}
	if r.State == stRunning && !r.Expired && !w.renews(t) {
		s := begin(false, "the lease of %s ends", taskID(t))
		s.World.Rows[t].Expired = true
		yield(s)
	}
	if r.State == stRetrying && !r.Due {
		s := begin(false, "%s is due", taskID(t))
		s.World.Rows[t].Due = true
		yield(s)
	}
}

// renews reports whether a live consumer holds t.
func (w *World) renews(t int) bool {
	for i := range w.Consumers {
		if c := &w.Consumers[i]; c.Pause != paused && c.holds(w) && int(c.Task) == t {
			return true
		}
	}
	return false
}

// holds is the holder's predicate.
func (c *Consumer) holds(w *World) bool {
	r := &w.Rows[c.Task]
	return c.At == running && r.State == stRunning && r.Fence == c.Fence
}
