package spec

import (
	"github.com/millweir/millweir/pkg/taskstate"
)

// holds is the holder's predicate: id, RUNNING, fence, timeline.
func (w *World) holds(x *Worker) bool {
	r := &w.Rows[x.Task]
	return r.State == stRunning && r.Fence == x.Fence && w.Epoch == x.Line
}

// running does a step of a run.
func (m *Model) running(w *World, i int, o Op) Result {
	x := &w.Workers[i]
	r := &w.Rows[x.Task]
	res := Result{Task: int(x.Task)}
	switch o.Kind {
	case OpRows:
		if !w.holds(x) && !m.without(FenceInEffect) {
			x.rest()
			return res
		}
		r.Version.Parts |= partRows
		x.At, res.Effect = atRows, true
	case OpVectors:
		if r.Version.No == x.No {
			r.Version.Parts |= partVectors
		}
		x.At = atVectors
	case OpBeat:
		m.beat(w, i)
	default:
	}
	return res
}

// beat renews the lease of a claim or reservation, or ends what was lost.
func (m *Model) beat(w *World, i int) {
	x := &w.Workers[i]
	r := &w.Rows[x.Task]
	mine := r.Owner == ownerOf(i) && (w.holds(x) || x.At == atReserved)
	if m.without(FenceInHeartbeat) {
		mine = r.State == stRunning
	}
	switch {
	case mine:
		r.Lease, r.Slept = ageAhead, false
	case x.At == atReserved && x.Had:
		*x = Worker{Pause: x.Pause, At: atRead, Task: x.Task, Entry: x.Entry, Had: true} // its delivery is put in order
	default:
		x.rest()
	}
}

// finishing does one finishing transaction of worker i, as package taskrun does it.
func (m *Model) finishing(w *World, i int, o Op) Result {
	x := &w.Workers[i]
	t := int(x.Task)
	if o.Reply != ReplyHeard {
		w.Left.Unknown--
	}
	again := o.Kind == OpFinish
	if !again {
		x.Doing = o.Kind
	}
	if o.Kind == OpThrottle {
		w.Left.Throttles--
	}
	if o.Reply == ReplyUndone {
		x.At = atUnsureFin
		return Result{Task: t}
	}
	before := w.Rows[t]
	res := m.commit(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return m.decideFinish(w, x, mo, task)
	})
	r := &w.Rows[t]
	if res.Change != nil {
		m.ended(w, t)
		if m.without(LogInTransaction) {
			r.Log = before.Log
		}
	}
	if o.Reply == ReplyLost {
		x.At = atUnsureFin
		return res
	}
	// After a lost answer a lost claim with the claim's own fence is what that try wrote: nobody else held the task.
	own := again && r.Fence == x.Fence && w.Epoch == x.Line && r.State != stRunning
	if res.Answer != taskstate.AnswerApplied && !own {
		x.rest()
		return res
	}
	m.follow(w, x)
	return res
}

// decideFinish asks the state machine about the outcome.
func (m *Model) decideFinish(w *World, x *Worker, mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
	h := taskstate.Holder{
		Token: taskstate.Token{Epoch: int64(x.Line) + 1, Fence: int64(x.Fence)},
		Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: processName(int(w.index(x)))},
	}
	if m.without(FenceInFinish) {
		h.Token.Fence = task.Fence
	}
	if m.without(EpochInToken) {
		h.Token.Epoch = mo.Epoch
	}
	switch x.Doing {
	case OpFail:
		return taskstate.Fail(m.policy, mo, task, h, taskstate.Failure{})
	case OpBreak:
		return taskstate.Fail(m.policy, mo, task, h, taskstate.Failure{Permanent: true})
	case OpThrottle:
		return taskstate.Fail(m.policy, mo, task, h, taskstate.Failure{Throttled: true})
	case OpSuspendHeld:
		return taskstate.Fail(m.policy, mo, task, h, taskstate.Failure{Suspend: true})
	case OpHandBack:
		d := taskstate.HandBack(mo, task, h, "")
		if d.Change != nil && m.without(FreeHandBack) {
			d.Change.AttemptCount++
		}
		return d
	default:
	}
	if m.cfg.Document && w.Doc.Upload > x.Task+1 && !m.without(UploadOrder) {
		return taskstate.Withdraw(mo, task, h, taskstate.ReasonSuperseded, "")
	}
	return taskstate.Succeed(mo, task, h, nil, "")
}

// index is the number of a worker.
func (w *World) index(x *Worker) uint8 {
	if x == &w.Workers[0] {
		return 0
	}
	return 1
}

// ended writes what belongs to an outcome in its transaction: the switch of versions, or the end of one.
func (m *Model) ended(w *World, t int) {
	r := &w.Rows[t]
	switch r.State {
	case stSucceeded:
		if m.cfg.Document {
			w.supersede()
			r.Version.State = versionVisible
			w.Doc.Visible, w.Doc.Upload = r.Version.No, uint8(t)+1
		}
	case stDead, stCancelled:
		w.abandon(t)
	case stNone, stQueued, stRunning, stRetrying, stSuspended:
	}
}

// follow is what comes after a committed outcome, in the order of design D11.
func (m *Model) follow(w *World, x *Worker) {
	r := &w.Rows[x.Task]
	switch r.State {
	case stSucceeded, stCancelled, stSuspended:
		x.acknowledge()
	case stDead:
		if r.Owed {
			x.bury(m, r, w.Epoch)
			return
		}
		x.acknowledge()
	case stQueued:
		x.At = atAdd
		if x.Had {
			x.At = atCopy
		}
	case stNone, stRunning, stRetrying:
		x.rest()
	}
}
