package spec

// Enabled returns the steps that can be done in w.
func (m *Model) Enabled(w World) []Op {
	out := make([]Op, 0, 32)
	m.enabled(&w, func(o Op) { out = append(out, o) })
	return out
}

// enabled calls yield for each step that can be done.
func (m *Model) enabled(w *World, yield func(o Op)) {
	for t := range m.cfg.Tasks {
		m.enabledAPI(w, t, yield)
		m.enabledClock(w, t, yield)
	}
	m.enabledStream(w, yield)
	for i := range w.Workers {
		m.enabledWorker(w, i, yield)
	}
	for i := range w.Loops {
		if m.cfg.Duties[i] != 0 {
			m.enabledLoop(w, i, yield)
		}
	}
}

// enabledAPI are the steps of the API and of people.
func (m *Model) enabledAPI(w *World, t int, yield func(o Op)) {
	r := &w.Rows[t]
	api := func(k Kind) { yield(Op{Kind: k, Proc: procAPI, Task: uint8(t)}) }
	if r.State == stNone {
		if t == 0 || w.Rows[t-1].State != stNone {
			api(OpAccept)
		}
		return
	}
	if r.Adds > 0 {
		api(OpPublish)
		if w.Left.Crashes > 0 {
			api(OpForget)
		}
	}
	if w.Left.Acts > 0 && (r.State == stQueued || r.State == stRunning || r.State == stRetrying) {
		api(OpCancel)
		api(OpSuspend)
		if r.State == stRetrying {
			api(OpRetryNow)
		}
	}
	if w.Left.Replays > 0 && r.Adds == 0 {
		superseded := m.cfg.Document && w.Doc.Upload > uint8(t)+1 // 409 SUPERSEDED
		switch {
		case r.State == stSuspended:
			api(OpResume)
		case (r.State == stDead || r.State == stCancelled) && !superseded:
			api(OpReplay)
		}
	}
}

// enabledClock are the times that can come, each by itself.
func (m *Model) enabledClock(w *World, t int, yield func(o Op)) {
	r := &w.Rows[t]
	clock := func(k Kind) { yield(Op{Kind: k, Proc: procClock, Task: uint8(t)}) }
	if r.Lease == ageAhead && !w.renewed(t) {
		clock(OpLeaseEnds)
	}
	if r.Due == ageAhead {
		clock(OpDue)
	}
	if r.State == stQueued && r.Lease != ageAhead && !r.Stale && !w.addsSoon(t) { // a reservation wakes with its lease
		clock(OpEnqueueAges)
	}
	if w.Left.Restores > 0 && (r.State == stRunning || r.State == stRetrying) && r.Deaths == 0 {
		clock(OpEpoch)
		if !m.cfg.Document || r.Version.State == versionBuilding {
			clock(OpRestore)
		}
	}
}

// renewed reports whether a live process renews the row's lease in time.
func (w *World) renewed(t int) bool {
	r := &w.Rows[t]
	for i := range w.Workers {
		x := &w.Workers[i]
		if x.Pause == procPaused || int(x.Task) != t || r.Owner != ownerOf(i) {
			continue
		}
		switch x.At {
		case atReserved:
			return true
		case atAckOld, atAdopt, atEarlyAck, atRun, atRows, atVectors, atUnsureFin:
			if w.holds(x) {
				return true
			}
		default:
		}
	}
	return false
}

// beats reports whether a process that is awake holds t and renews it with its next heartbeat.
func (w *World) beats(t int) bool {
	r := &w.Rows[t]
	for i := range w.Workers {
		x := &w.Workers[i]
		running := x.holding() || x.At == atUnsureFin
		if x.Pause != procPaused && int(x.Task) == t && r.Owner == ownerOf(i) && running && w.holds(x) {
			return true
		}
	}
	return false
}

// addsSoon reports whether a live process is about to add a delivery of t, or to claim it; it does so within the slack.
func (w *World) addsSoon(t int) bool {
	if w.Rows[t].Adds > 0 {
		return true
	}
	for i := range w.Loops {
		x := &w.Loops[i]
		if x.Pause == procAlive && (x.At == loopAdd && x.Mask&(1<<t) != 0 || x.At == loopCopy && int(x.Task) == t) {
			return true
		}
	}
	for i := range w.Workers {
		x := &w.Workers[i]
		if x.Pause == procPaused || int(x.Task) != t {
			continue
		}
		switch x.At {
		case atRead, atUnsure, atCopy, atAdd:
			return true
		default:
		}
	}
	return false
}

// usesSoon reports whether a live worker is about to do something with a pending entry; it does so within a lease.
func (w *World) usesSoon(n uint8) bool {
	for i := range w.Workers {
		x := &w.Workers[i]
		if x.Pause != procPaused && (x.Entry == n || x.Old == n) && (!x.holding() || x.At == atAckOld || x.At == atAdopt || x.At == atEarlyAck) {
			return true
		}
	}
	return false
}

// enabledStream is what happens to the stream.
func (m *Model) enabledStream(w *World, yield func(o Op)) {
	any := false
	for i, e := range w.Stream {
		if e.Kind == entryNone {
			continue
		}
		any = true
		op := Op{Kind: OpIdles, Proc: procClock, Task: e.Task, Entry: uint8(i + 1)}
		if e.Kind == entryPending && (e.Idle == 0 || e.Idle == 1 && m.cfg.Duties[1]&Pins != 0) && !w.usesSoon(uint8(i+1)) {
			yield(op)
		}
		if w.Left.Duplicates > 0 {
			op.Kind = OpDuplicate
			yield(op)
		}
	}
	if w.Left.Sleeps > 0 && (w.beats(0) || w.beats(1)) {
		yield(Op{Kind: OpSleep, Proc: procClock})
	}
	if any && w.Left.Flushes > 0 {
		yield(Op{Kind: OpFlush, Proc: procClock})
	}
}

// enabledLoop are the steps of a loop process.
func (m *Model) enabledLoop(w *World, i int, yield func(o Op)) {
	x := &w.Loops[i]
	op := Op{Proc: uint8(procLoop + i), Task: x.Task, Entry: x.Entry}
	do := func(k Kind) { op.Kind = k; yield(op) }
	if x.Pause == procPaused {
		do(OpContinue)
		return
	}
	if x.At == loopIdle {
		m.enabledIdleLoop(w, i, yield)
		return
	}
	if w.Left.Crashes > 0 {
		do(OpCrash)
	}
	if w.Left.Pauses > 0 {
		do(OpPause)
	}
	do([...]Kind{
		loopWatermark: OpEnqueue, loopAdd: OpAdd, loopLook: OpLook, loopRenew: OpRenew, loopCopy: OpCopy,
		loopAck: OpAck, loopDeadLetter: OpDeadLetter, loopMark: OpMark, loopUnpin: OpUnpin,
	}[x.At])
}

// enabledIdleLoop is the work that a loop process can find.
func (m *Model) enabledIdleLoop(w *World, i int, yield func(o Op)) {
	has := func(d Duties, r Rule) bool { return m.cfg.Duties[i]&d != 0 && !m.without(r) }
	proc := uint8(procLoop + i)
	if has(Sweeps, WatermarkSweep) {
		lost := w.lost()
		for t := range w.Rows {
			if w.Rows[t].State == stQueued && lost&(1<<t) != 0 {
				yield(Op{Kind: OpWatermark, Proc: proc})
				break
			}
		}
	}
	for t := range w.Rows {
		if has(Owed, OwedSweep) && w.Rows[t].State == stDead && w.Rows[t].Owed {
			yield(Op{Kind: OpOwed, Proc: proc, Task: uint8(t)})
		}
	}
	for n, e := range w.Stream {
		if e.Kind != entryPending {
			continue
		}
		op := Op{Proc: proc, Task: e.Task, Entry: uint8(n + 1)}
		if has(Settles, Settling) && (e.Idle > 0 || e.Own == ownerGone) {
			op.Kind = OpList
			yield(op)
		}
		if has(Pins, 0) && e.Idle == 2 && w.Rows[e.Task].State == stRetrying {
			op.Kind = OpPin
			yield(op)
		}
	}
}
