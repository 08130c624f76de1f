package kafka

import (
	"github.com/millweir/millweir/pkg/taskstate"
)

func relayName(i int) string { return [...]string{"relay 1", "relay 2"}[i] }

// relaySteps are the steps of a relay, and what can happen to its process.
func (m *Model) relaySteps(w *World, i int, begin beginFunc, yield func(s step)) {
	x := &w.Relays[i]
	name := relayName(i)
	if x.Pause == paused {
		s := begin(false, "%s wakes", name)
		s.World.Relays[i].Pause = alive
		yield(s)
		return
	}
	if x.At == rests {
		m.leases(w, i, begin, yield)
		return
	}
	if w.Left.Crashes > 0 {
		s := begin(true, "CRASH of %s", name)
		s.World.Left.Crashes--
		for n := range s.World.Events {
			if e := &s.World.Events[n]; e.Lease == uint8(i+1) {
				e.Lease = goneRelay
			}
		}
		s.World.Relays[i] = Relay{}
		yield(s)
	}
	if w.Left.Pauses > 0 {
		s := begin(true, "%s is PAUSED", name)
		s.World.Left.Pauses--
		s.World.Relays[i].Pause = paused
		yield(s)
	}
	if x.At == leased {
		m.sends(w, i, begin, yield)
		return
	}
	s := begin(false, "%s marks what it sent", name)
	m.mark(&s, i)
	yield(s)
}

// leases takes an event that nobody has, or tries again what died of an absent broker.
func (m *Model) leases(w *World, i int, begin beginFunc, yield func(s step)) {
	dead := false
	for n, e := range w.Events {
		dead = dead || e.State == evDead && !e.Refused
		if e.State != evNew && e.State != evRetrying || e.Lease != 0 && !e.Expired {
			continue
		}
		s := begin(false, "%s leases event %d of %s", relayName(i), n+1, taskID(int(e.Task)))
		s.World.Events[n].Lease, s.World.Events[n].Expired = uint8(i+1), false
		s.World.Relays[i] = Relay{At: leased, Event: uint8(n + 1)}
		if m.without(MarkAfterAck) {
			s.must("I16", false, "event %d is SENT and no broker has it", n+1)
		}
		yield(s)
	}
	if dead && !w.Down && !m.without(Revive) {
		s := begin(false, "%s revives DEAD events", relayName(i))
		for n := range s.World.Events {
			if e := &s.World.Events[n]; e.State == evDead && !e.Refused {
				e.State, e.Attempts = evNew, 0
			}
		}
		yield(s)
	}
}

// sends asks the broker.
func (m *Model) sends(w *World, i int, begin beginFunc, yield func(s step)) {
	x := &w.Relays[i]
	reply := func(fault bool, words string, taken bool, a Answer) {
		s := begin(fault, "%s sends: %s", relayName(i), words)
		to := &s.World.Relays[i]
		to.At, to.Answer = answered, a
		if taken && x.Event > 0 {
			e := &s.World.Events[x.Event-1]
			e.Acked = e.Acked || a == acked
			if e.DeadLetter {
				s.World.Rows[e.Task].DeadLetters |= 1 << e.Fence
			} else {
				s.Full = !s.World.append(e.Task)
			}
		}
		switch {
		case a == refused:
			s.World.Left.Refusals--
		case fault:
			s.World.Left.Replies--
		}
		yield(s)
	}
	if w.Down {
		reply(false, "no broker", false, unavailable)
		return
	}
	reply(false, "taken", true, acked)
	if w.Left.Refusals > 0 {
		reply(true, "REFUSED", false, refused)
	}
	if w.Left.Replies > 0 {
		reply(true, "taken, and the answer is LOST", true, unavailable)
	}
}

// append adds a record to the log; false: the world has no room.
func (w *World) append(t uint8) bool {
	for n := range w.Log {
		if !w.Log[n].Used {
			w.Log[n] = Record{Used: true, Task: t}
			return true
		}
	}
	return false
}

// mark writes down what became of an event, if it is still this relay's.
func (m *Model) mark(s *step, i int) {
	x := s.World.Relays[i]
	s.World.Relays[i] = Relay{}
	if x.Event == 0 {
		return
	}
	e := &s.World.Events[x.Event-1]
	if e.Lease != uint8(i+1) && !m.without(MarkComparesLease) {
		s.Op += ": its lease is another's"
		return
	}
	s.must("I16", e.State != evSent, "event %d was SENT and is marked again", x.Event)
	e.Lease, e.Expired = 0, false
	if x.Answer == acked {
		s.Op += ": SENT"
		e.State, e.Attempts, e.Sent = evSent, 0, 0
		if m.without(SentAtAfterAck) {
			e.Sent = x.Began
		}
		s.must("I16", e.Acked, "event %d is SENT and no broker has it", x.Event)
		return
	}
	e.Attempts++
	e.Refused = x.Answer == refused
	if e.State = evRetrying; e.Refused || e.Attempts >= maxSends {
		s.Op += ": DEAD"
		e.State = evDead
	}
}

// sweepSteps look for lost deliveries (design D5).
func (m *Model) sweepSteps(w *World, begin beginFunc, yield func(s step)) {
	if m.without(WatermarkSweep) {
		return
	}
	switch w.Sweep.At {
	case 0:
		for t := range w.Rows {
			if r := &w.Rows[t]; r.State == stQueued && r.Enqueued < 0 {
				s := begin(false, "sweep: reads the clock")
				s.World.Sweep = Sweep{At: 1}
				yield(s)
				return
			}
		}
	case 1:
		if w.Down {
			s := begin(false, "sweep: no broker answers")
			s.World.Sweep = Sweep{}
			yield(s)
			return
		}
		s := begin(false, "sweep: looks at the group's offset")
		s.World.Sweep.At = 2
		if w.Log[0].Used {
			s.World.Sweep.H = min(w.Sweep.H, w.Log[0].At)
		} else {
			s.World.Sweep.End = true
		}
		yield(s)
	default:
		s := begin(false, "sweep: promises")
		m.enqueue(&s)
		yield(s)
	}
}

// enqueue is the sweep's transaction.
func (m *Model) enqueue(s *step) {
	sweep := s.World.Sweep
	s.World.Sweep = Sweep{}
	h := sweep.H
	if sweep.End && m.without(NowBeforeBroker) {
		h = 0
	}
	for t := range m.cfg.Tasks {
		r := &s.World.Rows[t]
		if r.State != stQueued {
			continue
		}
		trail := s.World.trail(t)
		if m.without(UnsentIsNotLost) {
			trail.Waiting, trail.LastDead = false, 0
		}
		if m.without(OldDeathsDoNotCount) && trail.LastDead > 0 {
			trail.LastDead = trail.LastSent + 1
		}
		// After the broker has lost a record, that of an older event may lie there still: it costs a message, never a task.
		lies := s.World.lies(t) && s.World.Left.Tails == m.cfg.Faults.Tails
		d := taskstate.EnqueueEvent(m.policy, moment(), m.task(r, t), instant(h), trail)
		if d.Change != nil && d.Change.Deliver {
			s.must("D5", !lies, "%s is promised again while its event waits or its record lies undelivered", taskID(t))
		}
		s.Op += " " + taskID(t)
		m.commit(s, t, d)
	}
}

// trail is what the outbox says of a task's deliveries.
func (w *World) trail(t int) taskstate.EventTrail {
	var out taskstate.EventTrail
	for n, e := range w.Events {
		if e.DeadLetter || int(e.Task) != t {
			continue
		}
		switch e.State {
		case evNew, evRetrying:
			out.Waiting = true
		case evSent:
			out.LastSent, out.SentAt = int64(n+1), instant(e.Sent)
		case evDead:
			out.LastDead = int64(n + 1)
		case evNone:
		}
	}
	return out
}

// lies reports whether a delivery of t is still on its way.
func (w *World) lies(t int) bool {
	sent := false
	for n := len(w.Events) - 1; n >= 0; n-- {
		if e := w.Events[n]; !e.DeadLetter && int(e.Task) == t {
			switch e.State {
			case evNew, evRetrying:
				return true
			case evDead: // the newest of them waits for its broker
				if !sent {
					return true
				}
			case evSent:
				sent = true
			case evNone:
			}
		}
	}
	for _, rec := range w.Log {
		if rec.Used && !rec.Done && int(rec.Task) == t {
			return true
		}
	}
	return false
}

// brokerSteps are the broker's, the clock's and retention's.
func (m *Model) brokerSteps(w *World, begin beginFunc, yield func(s step)) {
	later := false
	c := *w
	c.times(func(a *age) { later = later || *a > -maxApart })
	if later {
		s := begin(false, "time passes")
		s.World.times(func(a *age) { *a-- })
		yield(s)
	}
	for n, e := range w.Events {
		held := e.Lease > 0 && e.Lease < goneRelay && w.Relays[e.Lease-1].Pause != paused && w.Relays[e.Lease-1].Event == uint8(n+1)
		if e.Lease > 0 && !e.Expired && !held {
			s := begin(false, "the lease of event %d ends", n+1)
			s.World.Events[n].Expired = true
			yield(s)
		}
		if m.without(RetentionSparesQueued) && e.State == evSent {
			s := begin(false, "retention drops event %d", n+1)
			s.World.dropEvent(n)
			yield(s)
		}
	}
	if w.Down {
		s := begin(false, "a broker answers again")
		s.World.Down = false
		yield(s)
	} else if w.Left.Outages > 0 {
		s := begin(true, "OUTAGE of the broker")
		s.World.Left.Outages--
		s.World.Down = true
		yield(s)
	}
	if w.Left.Rebalances > 0 {
		s := begin(true, "REBALANCE")
		s.World.Left.Rebalances--
		s.World.unassign(int(w.Assigned))
		yield(s)
	}
	if w.Left.Tails > 0 {
		for n := maxRecords - 1; n >= 0; n-- {
			if w.Log[n].Used {
				if !w.Log[n].Read {
					s := begin(true, "the broker LOSES its last record")
					s.World.Left.Tails--
					s.World.dropRecord(n)
					yield(s)
				}
				break
			}
		}
	}
}
