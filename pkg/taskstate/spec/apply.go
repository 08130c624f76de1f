package spec

import (
	"github.com/millweir/millweir/pkg/taskstate"
)

// Apply does one step that Enabled answered for w.
func (m *Model) Apply(w World, o Op) (World, Result) {
	var res Result
	switch {
	case o.Proc < numWorkers:
		res = m.work(&w, int(o.Proc), o)
	case o.Proc < procAPI:
		res = m.loop(&w, int(o.Proc-procLoop), o)
	case o.Proc == procAPI:
		res = m.api(&w, int(o.Task), o)
	default:
		res = m.world(&w, o)
	}
	return w, res
}

// work does a step of a worker.
func (m *Model) work(w *World, i int, o Op) Result {
	x := &w.Workers[i]
	switch o.Kind {
	case OpCrash:
		w.Left.Crashes--
		w.bury(i)
	case OpPause:
		w.Left.Pauses--
		x.Pause = procPaused
		if w.Rows[x.Task].Owner == ownerOf(i) {
			w.Rows[x.Task].Slept = false // it stands still alone now
		}
	case OpStop:
		w.Left.Stops--
		x.Pause = procStopping
	case OpContinue:
		x.Pause = procAlive
	case OpExit:
		w.bury(i)
	case OpRead:
		w.Stream[o.Entry-1].Kind, w.Stream[o.Entry-1].Own = entryPending, ownerOf(i)
		*x = Worker{Pause: x.Pause, At: atRead, Task: o.Task, Entry: o.Entry, Had: true}
	case OpClaim, OpRecover, OpAlone, OpRelease:
		return m.claiming(w, i, o)
	case OpRecoverOwn:
		return m.recoverOwn(w, i)
	case OpRows, OpVectors, OpBeat:
		return m.running(w, i, o)
	case OpSucceed, OpFail, OpBreak, OpThrottle, OpSuspendHeld, OpHandBack, OpFinish:
		return m.finishing(w, i, o)
	default:
		return m.errand(w, i, o)
	}
	return Result{}
}

// bury ends worker i's process; what it had is in its lists still, under a name that nobody has any more.
func (w *World) bury(i int) {
	w.Workers[i] = Worker{}
	for n := range w.Stream {
		if w.Stream[n].Own == ownerOf(i) {
			w.Stream[n].Own = ownerGone
		}
	}
	for t := range w.Rows {
		r := &w.Rows[t]
		if r.Owner == ownerOf(i) || r.Owner == ownerBefore(i) {
			r.Owner, r.Slept = ownerGone, false
		}
		if r.Claimant == ownerOf(i) || r.Claimant == ownerBefore(i) {
			r.Claimant = ownerGone
		}
	}
}

// api does a step of the API or of a person.
func (m *Model) api(w *World, t int, o Op) Result {
	r := &w.Rows[t]
	user := taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}
	operator := taskstate.Actor{Kind: taskstate.ActorOperator, Name: "o"}
	switch o.Kind {
	case OpAccept:
		return m.accept(w, t)
	case OpPublish:
		if !w.add(uint8(t)) {
			return Result{Full: true}
		}
		r.Adds--
	case OpForget:
		w.Left.Crashes--
		r.Adds--
	case OpCancel:
		w.Left.Acts--
		return m.person(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(mo, task, user, taskstate.ReasonCancelled, "")
		})
	case OpSuspend:
		w.Left.Acts--
		return m.person(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return taskstate.Suspend(mo, task, operator, "")
		})
	case OpRetryNow:
		w.Left.Acts--
		return m.person(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return taskstate.Retry(mo, task, user)
		})
	case OpReplay:
		w.Left.Replays--
		return m.person(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return m.spoilReplay(task, taskstate.Replay(mo, task, user, ""))
		})
	case OpResume:
		w.Left.Replays--
		return m.person(w, t, func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision {
			return m.spoilReplay(task, taskstate.Resume(mo, task, operator, ""))
		})
	default:
	}
	return Result{}
}

// spoilReplay takes rules away from a replay.
func (m *Model) spoilReplay(t taskstate.Task, d taskstate.Decision) taskstate.Decision {
	if d.Change != nil && m.without(FreshReplay) {
		d.Change.AttemptCount, d.Change.CrashCount = t.AttemptCount, t.CrashCount
	}
	if d.Change != nil && m.without(ReplayCancelsDebt) {
		d.Change.DLQ = t.DLQ
	}
	return d
}

// accept makes a task with its first transition, and its version.
func (m *Model) accept(w *World, t int) Result {
	r := &w.Rows[t]
	*r = Row{State: stQueued, Adds: 1, Log: Logged{State: stQueued}}
	w.build(t, m.cfg.Document)
	if m.cfg.Document && m.without(OldUntilNew) && w.Doc.Visible != 0 {
		w.supersede()
		w.Doc.Visible, w.Doc.Upload = 0, 0
	}
	task := m.task(r, t)
	return Result{Task: t, Transition: taskstate.Transition{
		TaskID: task.ID, To: taskstate.StatusQueued, Reason: taskstate.ReasonAccepted, Epoch: int64(w.Epoch) + 1,
		Actor: "user:u", CreatedAt: epoch,
	}}
}

// person does what a person asked for, and what belongs to it: a version for a replay, none for a cancelled task.
func (m *Model) person(w *World, t int, decide func(mo taskstate.DBClock, task taskstate.Task) taskstate.Decision) Result {
	res := m.commit(w, t, decide)
	if res.Change == nil {
		return res
	}
	r := &w.Rows[t]
	switch r.State {
	case stQueued:
		r.Adds++
		if res.Change.Reason == taskstate.ReasonReplayed {
			w.build(t, m.cfg.Document)
		}
	case stCancelled:
		w.abandon(t)
	case stNone, stRunning, stRetrying, stSucceeded, stDead, stSuspended:
	}
	return res
}

// build gives task t a new version of the document.
func (w *World) build(t int, document bool) {
	if document {
		w.Doc.Next++
		w.Rows[t].Version = Version{No: w.Doc.Next, State: versionBuilding}
	}
}

// abandon closes the version of a task that will not finish it.
func (w *World) abandon(t int) {
	if v := &w.Rows[t].Version; v.State == versionBuilding {
		v.State = versionAbandoned
	}
}

// supersede closes the visible version.
func (w *World) supersede() {
	for t := range w.Rows {
		if v := &w.Rows[t].Version; v.State == versionVisible {
			v.State = versionSuperseded
		}
	}
}

// world does what the clock and the weather do.
func (m *Model) world(w *World, o Op) Result {
	r := &w.Rows[o.Task]
	switch o.Kind {
	case OpFlush:
		w.Left.Flushes--
		w.flush()
	case OpDuplicate:
		if !w.add(o.Task) {
			return Result{Full: true}
		}
		w.Left.Duplicates--
	case OpEpoch:
		w.Left.Restores--
		w.Epoch++
		for t := range w.Rows {
			if w.Rows[t].State == stRunning {
				w.Rows[t].Lease = agePast
			}
		}
	case OpRestore:
		w.Left.Restores--
		w.Epoch++
		*r = Row{State: stQueued, Version: Version{No: r.Version.No, State: r.Version.State}, Log: Logged{State: stQueued}}
	case OpLeaseEnds:
		r.Lease = agePast
	case OpSleep:
		w.Left.Sleeps--
		for t := range w.Rows {
			if w.Rows[t].Lease == ageAhead {
				w.Rows[t].Lease, w.Rows[t].Slept = agePast, w.Rows[t].State == stRunning && w.beats(t)
			}
		}
	case OpDue:
		r.Due = agePast
	case OpEnqueueAges:
		r.Stale = true
	case OpIdles:
		w.Stream[o.Entry-1].Idle++
	default:
	}
	return Result{}
}
