package spec

import (
	"github.com/millweir/millweir/pkg/taskstate"
)

// claiming does one claiming transaction of worker i, as package taskrun does it.
func (m *Model) claiming(w *World, i int, o Op) Result {
	x := &w.Workers[i]
	t := int(o.Task)
	if x.At == atIdle || x.At == atRead || x.At == atReserved && o.Kind == OpAlone {
		w.newCall(i) // a repeat after a lost answer is the same call
	}
	if o.Kind == OpRelease {
		return m.release(w, i, t)
	}
	unsure := map[Kind]Step{OpClaim: atUnsure, OpRecover: atUnsureRe, OpAlone: atUnsureSo}[o.Kind]
	if o.Reply != ReplyHeard {
		w.Left.Unknown--
	}
	x.Task = uint8(t)
	if o.Reply == ReplyUndone {
		x.At = unsure
		return Result{Task: t}
	}
	before := w.Rows[t]
	res := m.commit(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return m.decideClaim(w, i, o.Kind, mo, task)
	})
	r := &w.Rows[t]
	if res.Change != nil && x.Had && x.Entry == 0 && r.State == stRunning {
		r.Delivery = 0 // it was claimed by an entry that is no more
	}
	if r.State == stDead && before.State != stDead {
		w.abandon(t)
	}
	if o.Reply == ReplyLost {
		x.At = unsure
		return res
	}
	m.answered(w, i, before, res)
	return res
}

// recoverOwn is the recovery loop of a process whose other slot holds the task, or has claimed it without an answer yet.
func (m *Model) recoverOwn(w *World, i int) Result {
	t := int(w.Workers[i].Task)
	return m.commit(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Claim(m.policy, mo, task, taskstate.ClaimRequest{
			Owner: ownerText[ownerOf(i)], Process: processName(i), Takeover: true, Held: !m.without(TakeoverByAnother),
			Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: processName(i)},
		})
	})
}

// newCall begins a claiming call: the owner texts of earlier ones are not its own.
func (w *World) newCall(i int) {
	for t := range w.Rows {
		if w.Rows[t].Owner == ownerOf(i) {
			w.Rows[t].Owner = ownerBefore(i)
		}
	}
}

// decideClaim asks the state machine; a claim of the same call, whose answer was lost, is its own.
func (m *Model) decideClaim(w *World, i int, kind Kind, mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
	x, r := &w.Workers[i], &w.Rows[w.Workers[i].Task]
	req := taskstate.ClaimRequest{
		Owner: ownerText[ownerOf(i)], Process: processName(i), Reserve: true,
		Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: processName(i)},
	}
	if task.Status == taskstate.StatusRunning && task.LeaseOwner == req.Owner {
		if r.Taken && !m.without(ReservationIsNoClaim) {
			return taskstate.Decision{TaskID: task.ID, Answer: taskstate.AnswerReserved}
		}
		return taskstate.Decision{TaskID: task.ID, Answer: taskstate.AnswerClaimed}
	}
	switch kind {
	case OpRecover:
		req.Takeover = true
	case OpAlone:
		req.Alone, req.Mine, req.Reserve = true, true, false
	default:
	}
	if x.Had && x.Entry != 0 {
		req.Delivery = string('0' + rune(x.Entry))
	}
	late := mo
	late.Now = epoch.Add(2 * modelLong)
	if m.without(LeaseInTakeover) && task.Status == taskstate.StatusRunning || m.without(DueInClaim) && task.Status == taskstate.StatusRetrying {
		mo = late
	}
	return taskstate.Claim(m.policy, mo, task, req)
}

// answered does with the entry what the claim's answer asks for (the table of design D4).
func (m *Model) answered(w *World, i int, before Row, res Result) {
	x, r := &w.Workers[i], &w.Rows[w.Workers[i].Task]
	switch res.Answer {
	case taskstate.AnswerClaimed:
		m.started(w, i, before)
	case taskstate.AnswerReserved:
		x.At = atReserved
	case taskstate.AnswerDead:
		x.Entry, x.Had = r.Delivery, true
		x.bury(m, r, w.Epoch)
	case taskstate.AnswerBusy, taskstate.AnswerNotDue:
		if !x.Had || x.Entry == before.Delivery {
			x.rest()
			return
		}
		x.acknowledge()
	case taskstate.AnswerSkipped:
		if !x.Had {
			x.rest()
			return
		}
		if before.Owed {
			x.bury(m, r, w.Epoch)
			return
		}
		x.acknowledge()
	default:
		x.rest()
	}
}

// started begins the run of a claim that was won.
func (m *Model) started(w *World, i int, before Row) {
	x, r := &w.Workers[i], &w.Rows[w.Workers[i].Task]
	x.Fence, x.Line, x.No, x.At = r.Fence, w.Epoch, r.Version.No, atRun
	switch {
	case !x.Had:
		x.Entry = r.Delivery
		if x.Entry != 0 {
			x.At = atAdopt
		}
	case m.without(AckAfterCommit):
		x.At = atEarlyAck
	case before.Delivery != 0 && before.Delivery != x.Entry:
		x.Old, x.At = before.Delivery, atAckOld
	}
}

// release drops a reservation at a stop; the entry that brought it is passed on.
func (m *Model) release(w *World, i, t int) Result {
	res := m.commit(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Release(m.policy, mo, task, ownerText[ownerOf(i)])
	})
	x, r := &w.Workers[i], &w.Rows[t]
	if res.Answer == taskstate.AnswerApplied {
		r.Taken = false
	}
	switch {
	case !x.Had, r.State != stQueued && x.Entry == r.Delivery:
		x.rest()
	case r.State == stQueued:
		x.At = atCopy
	default:
		x.acknowledge()
	}
	return res
}

// rest makes the worker idle.
func (x *Worker) rest() { *x = Worker{Pause: x.Pause} }

// acknowledge lets it acknowledge its entry next, if that exists.
func (x *Worker) acknowledge() {
	if x.Entry == 0 {
		x.rest()
		return
	}
	x.At = atAck
}

// bury lets it write the dead letter of the row, acknowledge its entry and mark the row.
func (x *Worker) bury(m *Model, r *Row, line uint8) {
	x.Fence, x.Line, x.Debt = r.Fence, line, true
	x.At = atDeadLetter
	if m.without(DeadLetterBeforeAck) {
		x.At = atAck
	}
}
