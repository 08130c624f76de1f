// Package search walks every state of a small world, breadth first, and judges every step. The worlds and their laws
// are those of packages spec and spec/kafka; the entry point is Run.
package search

import (
	"fmt"
	"slices"
	"time"
)

// Laws say what can happen in worlds W; O is what is kept of a step, to tell the way to a state.
type Laws[W comparable, O any] struct {
	Name  string
	Start W
	// Steps calls yield for each step that can be done in w.
	Steps func(w *W, yield func(s Step[W, O]))
	// Canon makes worlds equal that differ only in what nobody can see.
	Canon func(w *W)
	// Rest reports whether nothing is left to do in w.
	Rest func(w *W) bool
	// Words tell a path, a step each.
	Words func(path []O) []string
	// Left tells what is left in a world that never comes to rest.
	Left func(w *W) string
}

// Step is one step and the world that it leads to.
type Step[W comparable, O any] struct {
	Op     O
	World  W
	Fault  bool // a fault or a person's act: nothing may depend on its coming
	Full   bool // the world had no room for it
	Broken []Violation
}

// Violation is a rule that a step broke.
type Violation struct {
	Rule    string // as in deploy/docs/rules.md (I1 …) or design.md (D2 …); log I1 … when the history checker found it
	Problem string // what is wrong, in words
}

// String names both.
func (v Violation) String() string { return v.Rule + ": " + v.Problem }

// Found is a violation with the steps that lead to it.
type Found struct {
	Violation
	Path []string
}

// String tells the counterexample in words.
func (f Found) String() string {
	out := f.Violation.String()
	for i, step := range f.Path {
		out += fmt.Sprintf("\n  %2d %s", i+1, step)
	}
	return out
}

// Result is what a search of all states found.
type Result struct {
	States     int
	Steps      int // steps that were tried
	Depth      int // of the deepest state
	Took       time.Duration
	Full       int     // steps without room: above 0 the search is not complete
	Rest       int     // states at rest
	Alive      int     // states from which a fault-free way leads to rest
	Violations []Found // the first of each rule, each with a shortest way there
}

// search is the work of one Run.
type search[W comparable, O any] struct {
	Laws[W, O]
	out      Result
	ids      map[W]int32
	worlds   []W
	parent   []int32
	op       []O
	from, to []int32 // fault-free steps
	seen     map[string]bool
}

// Run searches every state that can be reached; beyond limit states it gives up with an error. With stop it ends at the
// first violation.
func Run[W comparable, O any](laws Laws[W, O], limit int, stop bool) (Result, error) {
	began := time.Now()
	s := &search[W, O]{Laws: laws, ids: map[W]int32{}, seen: map[string]bool{}}
	var none O
	s.add(laws.Start, -1, none)
	for at := int32(0); int(at) < len(s.worlds); at++ {
		if len(s.worlds) > limit {
			return Result{}, fmt.Errorf("%s: more than %d states", laws.Name, limit)
		}
		s.expand(at)
		if stop && len(s.out.Violations) > 0 {
			break
		}
	}
	s.out.States = len(s.worlds)
	s.out.Depth = len(s.path(int32(len(s.worlds) - 1)))
	if !stop || len(s.out.Violations) == 0 {
		s.liveness()
	}
	s.out.Took = time.Since(began)
	return s.out, nil
}

// add notes a state once and returns its number.
func (s *search[W, O]) add(w W, parent int32, op O) int32 {
	if id, known := s.ids[w]; known {
		return id
	}
	id := int32(len(s.worlds))
	s.ids[w] = id
	s.worlds, s.parent, s.op = append(s.worlds, w), append(s.parent, parent), append(s.op, op)
	return id
}

// expand tries every step from a state.
func (s *search[W, O]) expand(at int32) {
	w := s.worlds[at]
	s.Laws.Steps(&w, func(x Step[W, O]) {
		s.out.Steps++
		if x.Full {
			s.out.Full++
			return
		}
		for _, v := range x.Broken {
			s.report(v, func() []O { return append(s.path(at), x.Op) })
		}
		if len(x.Broken) > 0 {
			return // what follows a violation says nothing more
		}
		s.Canon(&x.World)
		if x.World == w {
			return
		}
		id := s.add(x.World, at, x.Op)
		if !x.Fault {
			s.from, s.to = append(s.from, at), append(s.to, id)
		}
	})
}

// report keeps the first violation of each rule.
func (s *search[W, O]) report(v Violation, path func() []O) {
	if !s.seen[v.Rule] {
		s.seen[v.Rule] = true
		s.out.Violations = append(s.out.Violations, Found{v, s.Words(path())})
	}
}

// path are the steps that lead to a state.
func (s *search[W, O]) path(at int32) []O {
	var out []O
	for ; s.parent[at] >= 0; at = s.parent[at] {
		out = append(out, s.op[at])
	}
	slices.Reverse(out)
	return out
}

// liveness finds states from which rest cannot be reached without a fault or a person's help: a task would be lost there
// (I15, L1, L4). It walks the fault-free steps backwards from the states at rest.
func (s *search[W, O]) liveness() {
	start := make([]int32, len(s.worlds)+1)
	for _, to := range s.to {
		start[to+1]++
	}
	for i := 1; i < len(start); i++ {
		start[i] += start[i-1]
	}
	back := make([]int32, len(s.to))
	fill := slices.Clone(start)
	for k, to := range s.to {
		back[fill[to]] = s.from[k]
		fill[to]++
	}
	fine := make([]bool, len(s.worlds))
	var queue []int32
	for i := range s.worlds {
		if s.Rest(&s.worlds[i]) {
			fine[i] = true
			queue = append(queue, int32(i))
		}
	}
	s.out.Rest, s.out.Alive = len(queue), len(queue)
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range back[start[at]:start[at+1]] {
			if !fine[from] {
				fine[from] = true
				s.out.Alive++
				queue = append(queue, from)
			}
		}
	}
	if i := slices.Index(fine, false); i >= 0 {
		lost := "no way leads to rest without a fault or a person's help: " + s.Left(&s.worlds[i])
		s.report(Violation{"L1", lost}, func() []O { return s.path(int32(i)) })
	}
}
