package spec

import (
	"github.com/millweir/millweir/pkg/taskstate"
)

// effect does a worker's step on the queue, or the mark that follows a dead letter.
func (m *Model) errand(w *World, i int, o Op) Result {
	x := &w.Workers[i]
	res := Result{Task: int(x.Task)}
	switch o.Kind {
	case OpAckOld:
		res.Acked = w.acked(x.Old)
		x.Old, x.At = 0, atRun
	case OpAdopt:
		if w.entry(x.Entry).Kind == entryPending {
			e := &w.Stream[x.Entry-1]
			e.Own, e.Idle, x.Had = ownerOf(i), 0, true
		}
		x.At = atRun
	case OpAck:
		early := x.At == atEarlyAck
		res.Acked = w.acked(x.Entry)
		switch {
		case early:
			x.At = atRun
		case x.Debt && m.without(DeadLetterBeforeAck):
			x.At = atDeadLetter
		case x.Debt:
			x.At = atMark
		default:
			x.rest()
		}
	case OpDeadLetter:
		res.DeadLetter = w.deadLetter(int(x.Task), x.Fence)
		x.At = atAck
		if m.without(DeadLetterBeforeAck) {
			x.At = atMark
		}
	case OpMark:
		res = m.mark(w, int(x.Task), x.Fence, x.Line)
		x.rest()
	case OpCopy:
		if !m.copied(w, x.Task, x.Entry, &res) {
			return Result{Full: true}
		}
		x.rest()
	case OpAdd:
		if !w.add(x.Task) {
			return Result{Full: true}
		}
		x.rest()
	default:
	}
	return res
}

// acked is XACK of an entry, answering its number if it was pending.
func (w *World) acked(n uint8) uint8 {
	if w.ack(n) {
		return n
	}
	return 0
}

// deadLetter writes a dead letter.
func (w *World) deadLetter(t int, fence uint8) uint16 {
	w.Rows[t].DeadLetters |= 1 << fence
	return 1 << fence
}

// mark notes in the row that its dead letter was written.
func (m *Model) mark(w *World, t int, fence, line uint8) Result {
	return m.commit(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		token := taskstate.Token{Epoch: int64(line) + 1, Fence: int64(fence)}
		if m.without(FenceInMark) {
			token.Fence = task.Fence
		}
		return taskstate.MarkDLQ(mo, task, token)
	})
}

// copied is the script that replaces an entry by a copy; it reports whether the world had room.
func (m *Model) copied(w *World, t, n uint8, res *Result) bool {
	res.Acked = w.acked(n)
	if res.Acked == 0 && !m.without(OneCopy) {
		return true
	}
	return w.add(t)
}

// loop does a step of a loop process.
func (m *Model) loop(w *World, i int, o Op) Result {
	x := &w.Loops[i]
	t := int(o.Task)
	res := Result{Task: t}
	switch o.Kind {
	case OpCrash:
		w.Left.Crashes--
		*x = Loop{}
	case OpPause:
		w.Left.Pauses--
		x.Pause = procPaused
	case OpContinue:
		x.Pause = procAlive
	case OpWatermark:
		*x = Loop{At: loopWatermark, Mask: w.lost()}
	case OpEnqueue:
		return m.enqueue(w, x)
	case OpAdd:
		return m.addAll(w, x)
	case OpOwed:
		r := &w.Rows[t]
		*x = Loop{At: loopDeadLetter, Task: o.Task, Entry: r.Delivery, Fence: r.Fence, Line: w.Epoch, Debt: true}
	case OpList:
		*x = Loop{At: loopLook, Task: o.Task, Entry: o.Entry}
	case OpLook:
		m.look(w, x)
	case OpRenew:
		res = m.commit(w, int(x.Task), func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return taskstate.Renew(m.policy, mo, task)
		})
		x.At = loopCopy
		if res.Answer != taskstate.AnswerApplied {
			x.rest()
		}
	case OpCopy:
		if !m.copied(w, x.Task, x.Entry, &res) {
			return Result{Full: true}
		}
		x.rest()
	case OpDeadLetter:
		res.DeadLetter = w.deadLetter(int(x.Task), x.Fence)
		x.At = loopAck
	case OpAck:
		res.Acked = w.acked(x.Entry)
		if x.Debt {
			x.At = loopMark
			return res
		}
		x.rest()
	case OpMark:
		res = m.mark(w, int(x.Task), x.Fence, x.Line)
		x.rest()
	case OpPin:
		*x = Loop{At: loopUnpin, Task: o.Task, Entry: o.Entry}
	case OpUnpin:
		if e := w.entry(x.Entry); e.Kind == entryPending && e.Idle == 2 {
			res.Acked = w.acked(x.Entry)
		}
		x.rest()
	default:
	}
	return res
}

// rest makes the loop idle.
func (x *Loop) rest() { *x = Loop{Pause: x.Pause} }

// enqueue renews the promises of the lost rows that are QUEUED still, in one transaction.
func (m *Model) enqueue(w *World, x *Loop) Result {
	var add uint8
	var res Result
	for t := range m.cfg.Tasks {
		watermark := epoch.Add(-2 * modelLong) // the row was not lost when the read watermark was read
		if x.Mask&(1<<t) != 0 {
			watermark = epoch
		}
		one := m.commit(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return taskstate.Enqueue(m.policy, mo, task, watermark)
		})
		if one.Answer == taskstate.AnswerApplied {
			add |= 1 << t
			res = one
		}
	}
	*x = Loop{Pause: x.Pause}
	if add != 0 {
		x.At, x.Mask = loopAdd, add
	}
	return res
}

// addAll adds the deliveries that were promised.
func (m *Model) addAll(w *World, x *Loop) Result {
	for t := range m.cfg.Tasks {
		if x.Mask&(1<<t) != 0 && !w.add(uint8(t)) {
			return Result{Full: true}
		}
	}
	x.rest()
	return Result{}
}

// look reads the row of a pending entry and decides by the table of design D4.
func (m *Model) look(w *World, x *Loop) {
	r := &w.Rows[x.Task]
	switch r.State {
	case stSucceeded, stCancelled, stSuspended:
		x.At = loopAck
	case stDead:
		x.At = loopAck
		if r.Owed {
			x.At, x.Fence, x.Line, x.Debt = loopDeadLetter, r.Fence, w.Epoch, true
		}
	case stQueued:
		x.At = loopRenew
	case stNone, stRunning, stRetrying:
		x.rest()
	}
}
