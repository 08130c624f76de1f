package kafka

import (
	"slices"

	"github.com/millweir/millweir/pkg/taskstate/spec/search"
)

// Run searches every state that can be reached, breadth first; beyond limit states it gives up with an error.
// With stop it ends at the first violation.
func (m *Model) Run(limit int, stop bool) (search.Result, error) {
	return search.Run(search.Laws[World, string]{
		Name: m.cfg.Name, Start: m.Start(),
		Steps: func(w *World, yield func(s search.Step[World, string])) {
			m.steps(w, func(s step) {
				s.World.owed(&s)
				yield(s.Step)
			})
		},
		Canon: m.canon,
		Rest:  func(w *World) bool { return w.rest(m.cfg.Tasks) },
		Words: func(path []string) []string { return path },
		Left:  func(*World) string { return "a task or an event waits for ever" },
	}, limit, stop)
}

// rest reports whether all is done: every task ended, every dead letter sent, nothing on its way.
func (w *World) rest(tasks int) bool {
	for t := range tasks {
		r := &w.Rows[t]
		if !r.terminal() && !(r.State == stQueued && w.refused(t)) || r.Owes {
			return false
		}
	}
	for _, e := range w.Events {
		if e.State == evNew || e.State == evRetrying || e.State == evDead && !e.Refused {
			return false
		}
	}
	for i := range numOf {
		if w.Consumers[i].At != idle || w.Relays[i].At != rests {
			return false
		}
	}
	return !w.Log[0].Used
}

// refused reports whether the newest delivery of t waits for an operator, as explain shows.
func (w *World) refused(t int) bool {
	trail := w.trail(t)
	return trail.LastDead > trail.LastSent && w.Events[trail.LastDead-1].Refused
}

// owed judges whether every dead task has its dead letter or an event for one; every state is asked.
func (w *World) owed(s *step) {
	for t := range w.Rows {
		r := &w.Rows[t]
		if r.State != stDead || r.Owes || r.DeadLetters&(1<<r.Fence) != 0 {
			continue
		}
		s.must("I18", slices.ContainsFunc(w.Events[:], func(e Event) bool {
			return e.State != evNone && e.DeadLetter && int(e.Task) == t && e.Fence == r.Fence
		}), "%s is DEAD without a dead letter and without an event for one", taskID(t))
	}
}
