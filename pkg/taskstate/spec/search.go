package spec

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Search is what a search of all states found.
type Search struct {
	States     int
	Steps      int // steps that were tried
	Depth      int // of the deepest state
	Took       time.Duration
	Full       int            // steps that had no room in the stream; above 0 the search is not complete
	Reached    [numKinds]int  // steps by kind
	Judged     map[string]int // by rule
	Violations []Found        // the first of each rule, each with a shortest way there
	Stuck      int            // states from which no fault-free way leads to rest
}

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

// search is the work of one Search.
type search struct {
	m      *Model
	limit  int
	out    *Search
	ids    map[World]int32
	worlds []World
	parent []int32
	op     []Op
	from   []int32 // fault-free steps: from → to
	to     []int32
	seen   map[string]bool
}

// Run searches every state that can be reached, breadth first; beyond limit states it gives up with an error.
// With stop it ends at the first violation.
func (m *Model) Run(limit int, stop bool) (*Search, error) {
	began := time.Now()
	s := &search{m: m, limit: limit, out: &Search{Judged: map[string]int{}}, ids: map[World]int32{}, seen: map[string]bool{}}
	start := m.Start()
	s.add(start, -1, Op{})
	for at := 0; at < len(s.worlds); at++ {
		if len(s.worlds) > limit {
			return nil, fmt.Errorf("%s: more than %d states", m.cfg.Name, limit)
		}
		s.expand(int32(at))
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
func (s *search) add(w World, parent int32, o Op) int32 {
	if id, known := s.ids[w]; known {
		return id
	}
	id := int32(len(s.worlds))
	s.ids[w] = id
	s.worlds, s.parent, s.op = append(s.worlds, w), append(s.parent, parent), append(s.op, o)
	return id
}

// expand tries every step from a state.
func (s *search) expand(at int32) {
	w := s.worlds[at]
	s.m.enabled(&w, func(o Op) {
		s.out.Steps++
		s.out.Reached[o.Kind]++
		next, res := s.m.Apply(w, o)
		if res.Full {
			s.out.Full++
			return
		}
		j := judge{m: s.m, before: &w, after: &next, op: o, res: res, judged: s.out.Judged}
		j.all()
		for _, v := range j.found {
			s.report(v, at, o)
		}
		if len(j.found) > 0 {
			return // what follows a violation says nothing more
		}
		s.m.canon(&next)
		if next == w {
			return
		}
		id := s.add(next, at, o)
		if !o.fault() {
			s.from, s.to = append(s.from, at), append(s.to, id)
		}
	})
}

// report keeps the first violation of each rule.
func (s *search) report(v Violation, at int32, o Op) {
	if s.seen[v.Rule] {
		return
	}
	s.seen[v.Rule] = true
	s.out.Violations = append(s.out.Violations, Found{v, s.words(append(s.path(at), o))})
}

// path are the steps that lead to a state.
func (s *search) path(at int32) []Op {
	var out []Op
	for ; s.parent[at] >= 0; at = s.parent[at] {
		out = append(out, s.op[at])
	}
	slices.Reverse(out)
	return out
}

// words tells steps, with the workers' names kept although states are stored with them exchanged.
func (s *search) words(path []Op) []string {
	w := s.m.Start()
	swapped := false
	out := make([]string, len(path))
	for i, o := range path {
		next, res := s.m.Apply(w, o)
		shown := o
		if swapped && o.Proc < numWorkers {
			shown.Proc = 1 - o.Proc
		}
		out[i] = shown.Words(res)
		if s.m.canon(&next) {
			swapped = !swapped
		}
		w = next
	}
	return out
}

// rest reports whether nothing is left to do: every task has ended or waits for a person, every debt is paid,
// and no entry is left.
func (m *Model) rest(w *World) bool {
	for t := range m.cfg.Tasks {
		r := &w.Rows[t]
		switch r.State {
		case stSucceeded, stCancelled, stSuspended:
		case stDead:
			if r.Owed {
				return false
			}
		case stNone, stQueued, stRunning, stRetrying:
			return false
		}
		if r.Adds > 0 {
			return false
		}
	}
	for _, e := range w.Stream {
		if e.Kind != entryNone {
			return false
		}
	}
	return true
}

// liveness finds states from which rest cannot be reached without a fault or a person's help: a task would be lost there
// (I15, L1, L4). It walks the fault-free steps backwards from the states at rest.
func (s *search) liveness() {
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
		if s.m.rest(&s.worlds[i]) {
			fine[i] = true
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for k := start[at]; k < start[at+1]; k++ {
			if from := back[k]; !fine[from] {
				fine[from] = true
				queue = append(queue, from)
			}
		}
	}
	for i := range s.worlds {
		if fine[i] {
			s.out.Judged["L1"]++
			continue
		}
		if s.out.Stuck++; s.out.Stuck == 1 {
			v := Violation{"L1", "no way leads to rest without a fault or a person's help: " + s.worlds[i].describe(s.m.cfg.Tasks)}
			s.out.Violations = append(s.out.Violations, Found{v, s.words(s.path(int32(i)))})
		}
	}
}

// describe tells what is left in a world.
func (w *World) describe(tasks int) string {
	out := ""
	for t := range tasks {
		r := &w.Rows[t]
		out += fmt.Sprintf("%s is %s, dead letter owed %t; ", taskID(t), name(r), r.Owed)
	}
	pending, fresh := 0, 0
	for _, e := range w.Stream {
		switch e.Kind {
		case entryPending:
			pending++
		case entryNew:
			fresh++
		case entryNone:
		}
	}
	return out + fmt.Sprintf("%d entries pending, %d undelivered", pending, fresh)
}

// Report writes the figures and every counterexample.
func (s *Search) Report(out io.Writer, name string) error {
	_, err := fmt.Fprintf(out, "%-12s %8d states %9d steps depth %3d %6.1f s, %d rules judged, %d violations\n",
		name, s.States, s.Steps, s.Depth, s.Took.Seconds(), len(s.Judged), len(s.Violations))
	for _, v := range s.Violations {
		if err == nil {
			_, err = fmt.Fprintln(out, v)
		}
	}
	return err
}
