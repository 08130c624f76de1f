package kafka

import (
	"fmt"
	"slices"
	"strings"
)

// Search is what a search of all states found.
type Search struct {
	States, Steps, Depth int
	Full                 int // steps without room: above 0 the search is not complete
	Rest                 int // states at rest
	Violations           []Violation
}

// Violation is a broken rule with a shortest way there, in words.
type Violation struct {
	Problem string
	Path    []string
}

// String tells the counterexample.
func (v Violation) String() string {
	return v.Problem + "\n  " + strings.Join(v.Path, "\n  ")
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

// owed tells which dead task has no dead letter and no event for one; every state is asked.
func (w *World) owed() string {
	for t := range w.Rows {
		r := &w.Rows[t]
		if r.State != stDead || r.Owes || r.DeadLetters&(1<<r.Fence) != 0 {
			continue
		}
		if !slices.ContainsFunc(w.Events[:], func(e Event) bool {
			return e.State != evNone && e.DeadLetter && int(e.Task) == t && e.Fence == r.Fence
		}) {
			return fmt.Sprintf("I18 %s is DEAD without a dead letter and without an event for one", taskID(t))
		}
	}
	return ""
}

// search is the work of one Search.
type search struct {
	m        *Model
	out      *Search
	ids      map[World]int32
	worlds   []World
	parent   []int32
	words    []string
	from, to []int32 // fault-free steps
	seen     map[string]bool
}

// Run searches every state that can be reached, breadth first; beyond limit states it gives up with an error.
// With stop it ends at the first violation.
func (m *Model) Run(limit int, stop bool) (*Search, error) {
	s := &search{m: m, out: &Search{}, ids: map[World]int32{}, seen: map[string]bool{}}
	s.add(m.Start(), -1, "")
	for at := int32(0); int(at) < len(s.worlds); at++ {
		if len(s.worlds) > limit {
			return nil, fmt.Errorf("%s: more than %d states", m.cfg.Name, limit)
		}
		s.expand(at)
		if stop && len(s.out.Violations) > 0 {
			break
		}
	}
	s.out.States = len(s.worlds)
	s.out.Depth = len(s.path(int32(len(s.worlds)-1), ""))
	if !stop || len(s.out.Violations) == 0 {
		s.liveness()
	}
	return s.out, nil
}

// add notes a state once and returns its number.
func (s *search) add(w World, parent int32, words string) int32 {
	if id, known := s.ids[w]; known {
		return id
	}
	id := int32(len(s.worlds))
	s.ids[w] = id
	s.worlds, s.parent, s.words = append(s.worlds, w), append(s.parent, parent), append(s.words, words)
	return id
}

// expand tries every step from a state.
func (s *search) expand(at int32) {
	w := s.worlds[at]
	s.m.steps(&w, func(x step) {
		s.out.Steps++
		if x.full {
			s.out.Full++
			return
		}
		if owed := x.world.owed(); owed != "" {
			x.problems = append(x.problems, owed)
		}
		for _, p := range x.problems {
			s.report(p, s.path(at, x.words))
		}
		if len(x.problems) > 0 {
			return // what follows a violation says nothing more
		}
		s.m.canon(&x.world)
		if x.world == w {
			return
		}
		id := s.add(x.world, at, x.words)
		if !x.fault {
			s.from, s.to = append(s.from, at), append(s.to, id)
		}
	})
}

// report keeps the first violation of each rule.
func (s *search) report(problem string, path []string) {
	rule, _, _ := strings.Cut(problem, " ")
	if !s.seen[rule] {
		s.seen[rule] = true
		s.out.Violations = append(s.out.Violations, Violation{problem, path})
	}
}

// path are the steps to a state and one more.
func (s *search) path(at int32, more string) []string {
	var out []string
	if more != "" {
		out = append(out, more)
	}
	for ; s.parent[at] >= 0; at = s.parent[at] {
		out = append(out, s.words[at])
	}
	slices.Reverse(out)
	return out
}

// liveness is L1: from every state a state at rest can be reached without a fault.
func (s *search) liveness() {
	back := make([][]int32, len(s.worlds))
	for i, to := range s.to {
		back[to] = append(back[to], s.from[i])
	}
	fine := make([]bool, len(s.worlds))
	var queue []int32
	for i := range s.worlds {
		if s.worlds[i].rest(s.m.cfg.Tasks) {
			fine[i] = true
			s.out.Rest++
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range back[at] {
			if !fine[from] {
				fine[from] = true
				queue = append(queue, from)
			}
		}
	}
	for i := range fine {
		if !fine[i] {
			s.report("L1 no way leads to rest without a fault", s.path(int32(i), ""))
			return
		}
	}
}
