package kafka

import "github.com/millweir/millweir/pkg/taskstate"

func consumerName(i int) string { return [...]string{"consumer A", "consumer B"}[i] }

// consumerSteps are the steps of a consumer, and what can happen to its process.
func (m *Model) consumerSteps(w *World, i int, begin beginFunc, yield func(s step)) {
	c := &w.Consumers[i]
	name := consumerName(i)
	if c.Pause == paused {
		s := begin(false, "%s wakes", name)
		s.World.Consumers[i].Pause = alive
		yield(s)
		return
	}
	if c.At != idle {
		m.consumerFaults(w, i, begin, yield)
	}
	switch c.At {
	case idle:
		m.takes(w, i, begin, yield)
	case hasRead:
		s := begin(false, "%s claims %s", name, taskID(int(c.Task)))
		m.claim(&s, i, false)
		yield(s)
	case running:
		m.ends(w, i, begin, yield)
	case finished:
		s := begin(false, "%s commits its offset", name)
		s.World.commitOffset(i)
		s.World.Consumers[i] = Consumer{Pause: c.Pause}
		yield(s)
	}
}

// consumerFaults are kill, pause and SIGTERM.
func (m *Model) consumerFaults(w *World, i int, begin beginFunc, yield func(s step)) {
	c := &w.Consumers[i]
	if w.Left.Crashes > 0 {
		s := begin(true, "CRASH of %s", consumerName(i))
		s.World.Left.Crashes--
		s.World.unassign(i)
		s.World.Consumers[i] = Consumer{}
		yield(s)
	}
	if w.Left.Pauses > 0 && c.Pause == alive {
		s := begin(true, "%s is PAUSED", consumerName(i))
		s.World.Left.Pauses--
		s.World.Consumers[i].Pause = paused
		yield(s)
	}
	if w.Left.Stops > 0 && c.Pause == alive && c.At == running {
		s := begin(true, "%s is told to STOP", consumerName(i))
		s.World.Left.Stops--
		s.World.Consumers[i].Pause = stopping
		yield(s)
	}
}

// takes is the work that an idle consumer finds: a record, a due retry, an expired lease.
func (m *Model) takes(w *World, i int, begin beginFunc, yield func(s step)) {
	if w.Consumers[i].Pause == stopping {
		s := begin(false, "%s ends", consumerName(i))
		s.World.unassign(i)
		s.World.Consumers[i] = Consumer{}
		yield(s)
		return
	}
	for n, rec := range w.Log {
		if rec.Used && !rec.Read && int(w.Assigned) == i && !w.Down {
			s := begin(false, "%s reads a record of %s", consumerName(i), taskID(int(rec.Task)))
			s.World.Log[n].Read = true
			s.World.Consumers[i] = Consumer{At: hasRead, Task: rec.Task, Rec: uint8(n + 1)}
			yield(s)
			break
		}
	}
	if m.without(RecoverySweep) {
		return
	}
	for t := range m.cfg.Tasks {
		r := &w.Rows[t]
		if r.State == stRetrying && r.Due || r.State == stRunning && r.Expired {
			s := begin(false, "%s recovers %s", consumerName(i), taskID(t))
			s.World.Consumers[i] = Consumer{Task: uint8(t)}
			m.claim(&s, i, true)
			yield(s)
		}
	}
}

// claim is the claiming transaction; whatever it does not win needs no record.
func (m *Model) claim(s *step, i int, takeover bool) {
	c := &s.World.Consumers[i]
	t := int(c.Task)
	d := taskstate.Claim(m.policy, moment(), m.task(&s.World.Rows[t], t), taskstate.ClaimRequest{
		Owner: "p/1", Process: "q", Takeover: takeover, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"},
	})
	m.commit(s, t, d)
	if d.Answer != taskstate.AnswerClaimed {
		c.At = finished
		if c.Rec == 0 {
			*c = Consumer{Pause: c.Pause}
		}
		return
	}
	c.At, c.Fence = running, s.World.Rows[t].Fence
	if m.without(OffsetAfterOutcome) && c.Rec != 0 {
		s.must("I21", false, "the offset moves over a record of %s, which runs", taskID(t))
	}
}

// ends are the ends of a run, and its heartbeat when it needs one.
func (m *Model) ends(w *World, i int, begin beginFunc, yield func(s step)) {
	c := &w.Consumers[i]
	name, t := consumerName(i), int(c.Task)
	if !c.holds(w) || w.Rows[t].Expired {
		s := begin(false, "%s beats", name)
		if c.holds(w) {
			s.World.Rows[t].Expired = false
		} else {
			s.World.Consumers[i].At = finished // its row says what comes next
			s.World.rests(i)
		}
		yield(s)
	}
	end := func(words string, decide func(task taskstate.Task, h taskstate.Holder) taskstate.Decision) {
		s := begin(false, "%s: %s %s", name, words, taskID(t))
		h := taskstate.Holder{
			Token: taskstate.Token{Epoch: 1, Fence: int64(c.Fence)}, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: name},
		}
		r := &s.World.Rows[t]
		if m.without(FenceInFinish) {
			h.Token.Fence = int64(r.Fence)
		}
		d := decide(m.task(r, t), h)
		s.must("I4", d.Change == nil || c.Fence == r.Fence, "%s ends the run of fence %d with fence %d", name, r.Fence, c.Fence)
		m.commit(&s, t, d)
		s.World.Consumers[i].At = finished
		s.World.rests(i)
		yield(s)
	}
	if c.Pause == stopping {
		end("hands back", func(task taskstate.Task, h taskstate.Holder) taskstate.Decision {
			return taskstate.HandBack(moment(), task, h, "")
		})
		return
	}
	end("succeeds with", func(task taskstate.Task, h taskstate.Holder) taskstate.Decision {
		return taskstate.Succeed(moment(), task, h, nil, "")
	})
	if m.cfg.Fails {
		end("fails", func(task taskstate.Task, h taskstate.Holder) taskstate.Decision {
			return taskstate.Fail(m.policy, moment(), task, h, taskstate.Failure{})
		})
	}
}

// rests makes a consumer without a record idle at once.
func (w *World) rests(i int) {
	if c := &w.Consumers[i]; c.Rec == 0 {
		*c = Consumer{Pause: c.Pause}
	}
}

// commitOffset marks the consumer's record as done; the group's offset moves over a done prefix.
func (w *World) commitOffset(i int) {
	if n := w.Consumers[i].Rec; n > 0 {
		w.Log[n-1].Done = true
	}
}

// unassign gives the partition to the other consumer: what is not done is read again, and nobody commits for it.
func (w *World) unassign(i int) {
	if int(w.Assigned) == i {
		w.Assigned = uint8(1 - i)
	}
	for n := range w.Log {
		w.Log[n].Read = w.Log[n].Read && w.Log[n].Done
	}
	for c := range w.Consumers {
		w.Consumers[c].Rec = 0
		if w.Consumers[c].At == hasRead || w.Consumers[c].At == finished {
			w.Consumers[c] = Consumer{Pause: w.Consumers[c].Pause}
		}
	}
}
