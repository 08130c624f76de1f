package spec

import (
	"math/bits"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/pkg/taskstate/spec/search"
)

// leave judges what happened to a running task: I4, I5 and I6.
func (j *judge) leave(t int, b, a *Row) {
	x, isWorker := j.worker()
	if a.State == stRunning {
		own := isWorker && b.Taken && (b.Owner == ownerOf(int(j.op.Proc)) || b.Owner == ownerBefore(int(j.op.Proc)))
		j.must("I6", b.Lease == agePast || own, "%s was taken over under a live lease", taskID(t))
		return
	}
	j.must("I5", b.Fence >= b.Ended, "%s: a second transition ends the run of fence %d", taskID(t), b.Fence)
	switch {
	case j.res.Transition.Reason == taskstate.ReasonCrashLimit:
		j.must("I6", b.Lease == agePast, "%s was ended by the crash limit under a live lease", taskID(t))
	case j.op.Kind == OpCancel || j.op.Kind == OpSuspend:
	default:
		held := isWorker && x.Fence == b.Fence && x.Line == j.before.Epoch && b.Claimant == ownerOf(int(j.op.Proc))
		j.must("I4", held, "%s: %s by %s, who does not hold fence %d", taskID(t), j.op.Kind, j.op.actor(), b.Fence)
	}
}

// lease judges a change without a transition: reservations (design D6) and heartbeats.
func (j *judge) lease(t int, b, a *Row) {
	reserved := j.res.Task == t && j.res.Answer == taskstate.AnswerReserved && j.res.Change != nil
	switch {
	case reserved && b.State == stRunning:
		j.must("D6", b.Lease == agePast, "%s was reserved under a live lease", taskID(t))
	case reserved:
		j.must("D6", b.Lease != ageAhead || b.Owner/2 == a.Owner/2, "%s was reserved although another had reserved it", taskID(t))
	case j.op.Kind == OpBeat && a.Lease != b.Lease:
		x := &j.before.Workers[j.op.Proc]
		own := b.Owner == ownerOf(int(j.op.Proc)) && int(x.Task) == t
		j.must("I4", own, "%s: %s renewed a lease that is not its own", taskID(t), j.op.actor())
	}
}

// log lets the history checker judge the transition, as it would in a real log.
func (j *judge) log() {
	tr := j.res.Transition
	if tr.To == "" {
		return
	}
	b := &j.before.Rows[j.res.Task]
	trail := history.Trail{
		Status: statusOf[b.Log.State], Attempts: int(b.Log.Attempts), Crashes: int(b.Log.Crashes), Fence: int64(b.Log.Fence),
		Epoch: int64(j.before.Epoch) + 1, ClaimEpoch: int64(j.before.Epoch) + 1,
		NextRetry: history.At(b.Due.instant()), Lease: history.At(b.Lease.instant()),
		Left: int64(b.Ended),
	}
	if b.State != stNone {
		trail.At = history.At(epoch.Add(-modelLong))
	}
	if b.Claimant != ownerNone {
		trail.Holder = "worker:gone"
		if b.Claimant >= ownerOf(0) {
			trail.Holder = "worker:" + processName(int(b.Claimant-ownerOf(0))/2)
		}
	}
	if b.Taken {
		trail.Lease = history.At(agePast.instant()) // a reservation renews what had expired
	}
	_, v := trail.Step(&history.Options{Policy: &j.m.policy}, tr)
	if j.judged != nil {
		for _, r := range history.Rules() {
			if v.Judged.Has(r) {
				j.judged["log "+r.ID]++
			}
		}
	}
	for _, bad := range v.Violations {
		j.found = append(j.found, search.Violation{Rule: "log " + bad.Rule, Problem: bad.Problem})
	}
}

// holding reports whether a worker believes that it runs a task.
func (x *Worker) holding() bool {
	switch x.At {
	case atAckOld, atAdopt, atEarlyAck, atRun, atRows, atVectors:
		return true
	default:
		return false
	}
}

// holders judges what workers believe (design D2, D6) and what they write (I26).
func (j *judge) holders() {
	one, two := &j.after.Workers[0], &j.after.Workers[1]
	if one.holding() && two.holding() && one.Task == two.Task {
		j.must("D2", one.Fence != two.Fence || one.Line != two.Line, "both workers run %s with fence %d", taskID(int(one.Task)), one.Fence)
	}
	if j.res.Effect {
		x, _ := j.worker()
		j.must("I26", j.before.holds(x) && j.before.Rows[x.Task].Claimant == ownerOf(int(j.op.Proc)),
			"%s wrote segments of %s without holding it", j.op.actor(), taskID(int(x.Task)))
	}
	if tr := &j.res.Transition; tr.Reason == taskstate.ReasonTakeover || tr.Reason == taskstate.ReasonCrashLimit {
		b := &j.before.Rows[j.res.Task]
		j.must("D6", j.op.Kind != OpRecoverOwn, "%s was taken over by the very process that runs it", tr.TaskID)
		j.must("D6", !b.Slept, "a crash of %s was counted because the machine slept; its process runs on", tr.TaskID)
	}
	if tr := &j.res.Transition; tr.To == taskstate.StatusRunning {
		b, a := &j.before.Rows[j.res.Task], &j.after.Rows[j.res.Task]
		last := int(a.Crashes) >= j.m.cfg.MaxCrashes-1
		j.must("D6", !last || j.op.Kind == OpAlone, "%s, on its last chance, was claimed by a process that may hold others", tr.TaskID)
		foreign := b.State != stRunning && b.Lease == ageAhead && b.Owner/2 != a.Owner/2
		j.must("D6", !foreign, "%s was claimed although another had reserved it", tr.TaskID)
	}
}

// delivery judges what the step did to the stream and the dead letters: I17 and I18.
func (j *judge) delivery() {
	if j.res.DeadLetter != 0 {
		r := &j.after.Rows[j.op.Task]
		j.must("I18", r.Deaths&j.res.DeadLetter != 0, "a dead letter of %s, fence %d, that was never DEAD",
			taskID(int(j.op.Task)), bits.TrailingZeros16(j.res.DeadLetter))
	}
	for t := range j.m.cfg.Tasks {
		if r := &j.after.Rows[t]; r.Marked {
			j.must("I18", r.DeadLetters&(1<<r.Fence) != 0, "%s is marked, but fence %d has no dead letter", taskID(t), r.Fence)
		}
	}
	switch j.op.Kind {
	case OpLook:
		j.settled()
	case OpCopy:
		j.must("D4", j.after.entries() <= j.before.entries(), "a copy of an entry that was gone: one delivery became two")
	case OpEnqueue:
		j.enqueued()
	default:
	}
	if j.res.Acked == 0 || j.op.Proc >= numWorkers {
		return // reconciling acts on the row as it read it, which settled has judged
	}
	r := &j.before.Rows[j.before.entry(j.res.Acked).Task]
	x, _ := j.worker()
	if r.Delivery != j.res.Acked || x.Fence != 0 && x.Fence < r.Fence {
		return // another's delivery, or that of an own claim whose outcome is committed: it costs a message, never a task
	}
	task := taskID(int(j.before.entry(j.res.Acked).Task))
	j.must("I17", r.State != stRunning && r.State != stRetrying, "the own delivery of %s was acknowledged while it was %s", task, name(r))
	if r.State == stDead && r.Owed {
		j.must("I18", r.DeadLetters&(1<<r.Fence) != 0, "the delivery of %s, which is DEAD, was acknowledged before its dead letter", task)
	}
}

// enqueued judges the read watermark sweep: a healthy backlog is never added again (design D5).
func (j *judge) enqueued() {
	x := &j.after.Loops[j.op.Proc-procLoop]
	for _, e := range j.before.Stream {
		if e.Kind == entryNew && x.At == loopAdd && x.Mask&(1<<e.Task) != 0 {
			j.must("D5", e.Since&(1<<e.Task) != 0, "%s is promised again while the entry that was promised lies undelivered", taskID(int(e.Task)))
		}
	}
}

// entries counts what is in the stream.
func (w *World) entries() int {
	n := 0
	for _, e := range w.Stream {
		if e.Kind != entryNone {
			n++
		}
	}
	return n
}

// settled judges what reconciling decided about an entry, by the row as it was read: I17.
func (j *judge) settled() {
	x := &j.after.Loops[j.op.Proc-procLoop]
	r := &j.before.Rows[j.op.Task]
	ended := r.State == stSucceeded || r.State == stCancelled || r.State == stSuspended || r.State == stDead && !r.Owed
	switch x.At {
	case loopAck:
		j.must("I17", ended, "settling acknowledges an entry of a %s row", name(r))
	case loopRenew:
		j.must("I17", r.State == stQueued, "settling copies an entry of a %s row", name(r))
	case loopDeadLetter:
		j.must("I18", r.State == stDead && r.Owed, "settling writes a dead letter of a %s row", name(r))
	default:
	}
}

// document judges what a reader sees: I23, I24 and I25.
func (j *judge) document() {
	b, a := &j.before.Doc, &j.after.Doc
	if b.Visible != a.Visible {
		done := j.res.Transition.To == taskstate.StatusSucceeded && j.after.Rows[j.res.Task].Version.No == a.Visible
		j.must("I23", done || a.Visible == 0, "the visible version changed from %d to %d at %s", b.Visible, a.Visible, j.op.Kind)
		j.must("I24", a.Visible != 0, "version %d was visible, and now none is", b.Visible)
		j.must("I23", a.Upload >= b.Upload || a.Visible == 0, "upload %d replaced the newer upload %d", a.Upload, b.Upload)
	}
	visible := 0
	for t := range j.m.cfg.Tasks {
		v := &j.after.Rows[t].Version
		if v.State == versionVisible {
			visible++
			j.must("I25", v.Parts == allParts, "version %d is visible without all its segments", v.No)
			j.must("I23", v.No == a.Visible, "version %d is marked visible, the document shows %d", v.No, a.Visible)
		}
		old := &j.before.Rows[t].Version
		final := old.No == v.No && (old.State == versionSuperseded || old.State == versionAbandoned)
		if final {
			j.must("D8", old.State == v.State, "version %d left its final state", v.No)
		}
	}
	if visible != 0 || a.Visible != 0 {
		j.must("I23", visible == 1, "%d versions are visible", visible)
	}
}
