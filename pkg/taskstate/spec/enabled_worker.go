package spec

// enabledWorker are the steps of a worker, and what can happen to its process.
func (m *Model) enabledWorker(w *World, i int, yield func(o Op)) {
	x := &w.Workers[i]
	op := Op{Proc: uint8(i), Task: x.Task, Entry: x.Entry}
	do := func(k Kind) { op.Kind = k; yield(op) }
	if x.Pause == procPaused {
		do(OpContinue)
		return
	}
	if x.At != atIdle {
		if w.Left.Crashes > 0 {
			do(OpCrash)
		}
		if w.Left.Pauses > 0 && x.Pause == procAlive {
			do(OpPause)
		}
		if w.Left.Stops > 0 && x.Pause == procAlive {
			do(OpStop)
		}
	}
	if r := &w.Rows[x.Task]; w.own(i) && r.State == stRunning && r.Lease == agePast && !r.Slept {
		do(OpRecoverOwn)
	}
	switch x.At {
	case atIdle:
		m.enabledIdle(w, i, yield)
	case atRead, atReserved, atUnsure, atUnsureRe, atUnsureSo:
		m.enabledClaim(w, i, yield)
	case atRun, atRows, atVectors:
		m.enabledRun(w, i, yield)
	case atUnsureFin:
		do(OpFinish)
	case atAckOld:
		do(OpAckOld)
	case atAdopt:
		do(OpAdopt)
	case atAck, atEarlyAck:
		do(OpAck)
	case atDeadLetter:
		do(OpDeadLetter)
	case atMark:
		do(OpMark)
	case atCopy:
		do(OpCopy)
	case atAdd:
		do(OpAdd)
	}
}

// own reports whether the claim that the worker's row names is its own: it runs, or its answer was lost.
func (w *World) own(i int) bool {
	x := &w.Workers[i]
	switch x.At {
	case atUnsure, atUnsureRe, atUnsureSo:
		return w.Rows[x.Task].Owner == ownerOf(i) && !w.Rows[x.Task].Taken
	default:
		return (x.holding() || x.At == atUnsureFin) && w.holds(x)
	}
}

// enabledIdle is the work that an idle worker can take.
func (m *Model) enabledIdle(w *World, i int, yield func(o Op)) {
	x := &w.Workers[i]
	if x.Pause == procStopping {
		yield(Op{Kind: OpExit, Proc: uint8(i)})
		return
	}
	if n := w.first(); n != 0 {
		yield(Op{Kind: OpRead, Proc: uint8(i), Task: w.entry(n).Task, Entry: n})
	}
	if m.without(RecoverySweep) {
		return
	}
	for t := range m.cfg.Tasks {
		r := &w.Rows[t]
		free := r.Lease != ageAhead
		due := r.State == stRetrying && (r.Due == agePast || m.without(DueInClaim)) && free
		expired := r.State == stRunning && (free || m.without(LeaseInTakeover)) && (!r.Slept || m.without(RestAfterStandstill))
		if due || expired {
			m.withReplies(w, Op{Kind: OpRecover, Proc: uint8(i), Task: uint8(t)}, yield)
		}
	}
}

// withReplies yields a transaction with every answer that its caller may hear.
func (m *Model) withReplies(w *World, o Op, yield func(o Op)) {
	yield(o)
	if w.Left.Unknown > 0 {
		o.Reply = ReplyLost
		yield(o)
		o.Reply = ReplyUndone
		yield(o)
	}
}

// enabledClaim are the steps of a worker that wants a task, or asks again after a lost answer.
func (m *Model) enabledClaim(w *World, i int, yield func(o Op)) {
	x := &w.Workers[i]
	op := Op{Proc: uint8(i), Task: x.Task, Entry: x.Entry}
	stopping := x.Pause == procStopping
	switch x.At {
	case atRead:
		op.Kind = OpClaim
		if stopping {
			op.Kind = OpCopy // handed back unclaimed
			yield(op)
			return
		}
		m.withReplies(w, op, yield)
	case atUnsure:
		op.Kind = OpClaim
		yield(op)
	case atUnsureRe:
		op.Kind = OpRecover
		yield(op)
	case atUnsureSo:
		op.Kind = OpAlone
		yield(op)
	case atReserved:
		r := &w.Rows[x.Task]
		if r.Owner != ownerOf(i) || r.Lease == agePast {
			op.Kind = OpBeat
			yield(op)
		}
		if stopping {
			op.Kind = OpRelease
			yield(op)
			return
		}
		op.Kind = OpAlone
		m.withReplies(w, op, yield)
	default:
	}
}

// enabledRun are the steps of a run, and its ends.
func (m *Model) enabledRun(w *World, i int, yield func(o Op)) {
	x := &w.Workers[i]
	r := &w.Rows[x.Task]
	op := Op{Proc: uint8(i), Task: x.Task}
	end := func(k Kind) { op.Kind = k; m.withReplies(w, op, yield) }
	if r.Lease == agePast || r.Owner != ownerOf(i) || !w.holds(x) {
		op.Kind = OpBeat
		yield(op)
	}
	if x.Pause == procStopping {
		end(OpHandBack)
	}
	if m.cfg.Document && x.At != atVectors {
		op.Kind = OpRows
		if x.At == atRows {
			op.Kind = OpVectors
		}
		yield(op)
	}
	if !m.cfg.Document || x.At == atVectors || m.without(PartsBeforeSwitch) {
		end(OpSucceed)
	}
	if x.At == atVectors {
		return // what fails before the switch fails as it does before the vectors
	}
	if w.Left.Throttles > 0 {
		end(OpThrottle)
	}
	for _, e := range []struct {
		may  Outcomes
		kind Kind
	}{{MayFail, OpFail}, {MayBreak, OpBreak}, {MaySuspend, OpSuspendHeld}} {
		if m.cfg.Outcomes&e.may != 0 {
			end(e.kind)
		}
	}
}
