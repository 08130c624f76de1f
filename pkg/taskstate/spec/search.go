// Package spec is the executable specification of tasks: a model that runs the very functions of package taskstate that
// production runs, with a world around them that is small enough to be searched whole.
//
// It has two uses. A Model searches every order of steps, crashes, pauses, lost replies and doubled deliveries of a
// small world for a state that breaks a rule (Search); each call of a port is a step of its own. A Table is the task
// store in memory that the three databases are compared with, operation by operation.
//
// What a model leaves out is in deploy/docs/model.md. The package imports nothing but the standard library and
// its own module.
package spec

import (
	"fmt"
	"io"

	"github.com/millweir/millweir/pkg/taskstate/spec/search"
)

// Search is what a search of all states found.
type Search struct {
	search.Result
	Reached [numKinds]int  // steps by kind
	Judged  map[string]int // by rule
}

// Run searches every state that can be reached, breadth first; beyond limit states it gives up with an error.
// With stop it ends at the first violation.
func (m *Model) Run(limit int, stop bool) (*Search, error) {
	out := &Search{Judged: map[string]int{}}
	var err error
	out.Result, err = search.Run(search.Laws[World, Op]{
		Name: m.cfg.Name, Start: m.Start(),
		Steps: func(w *World, yield func(s search.Step[World, Op])) { m.steps(w, out, yield) },
		Canon: func(w *World) { m.canon(w) },
		Rest:  m.rest,
		Words: m.words,
		Left:  func(w *World) string { return w.describe(m.cfg.Tasks) },
	}, limit, stop)
	out.Judged["L1"] += out.Alive
	return out, err
}

// steps does every step that can be done in w, counts it in out and judges it.
func (m *Model) steps(w *World, out *Search, yield func(s search.Step[World, Op])) {
	m.enabled(w, func(o Op) {
		out.Reached[o.Kind]++
		next, res := m.Apply(*w, o)
		step := search.Step[World, Op]{Op: o, World: next, Fault: o.fault(), Full: res.Full}
		if !res.Full {
			j := judge{m: m, before: w, after: &next, op: o, res: res, judged: out.Judged}
			j.all()
			step.Broken = j.found
		}
		yield(step)
	})
}

// words tells steps, with the workers' names kept although states are stored with them exchanged.
func (m *Model) words(path []Op) []string {
	w := m.Start()
	swapped := false
	out := make([]string, len(path))
	for i, o := range path {
		next, res := m.Apply(w, o)
		shown := o
		if swapped && o.Proc < numWorkers {
			shown.Proc = 1 - o.Proc
		}
		out[i] = shown.Words(res)
		if m.canon(&next) {
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
