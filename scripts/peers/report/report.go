// Package report keeps what was measured and judges it: medians over the repetitions, ratios inside them, tables.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/millweir/millweir/scripts/peers/rival"
	"github.com/millweir/millweir/scripts/peers/stage"
)

// Result is one phase of one system in one repetition.
type Result struct {
	System  string         `json:"system"`
	Keeps   string         `json:"keeps"` // through a power failure
	Rep     int            `json:"rep"`
	Phase   rival.Phase    `json:"phase"`
	Reply   rival.Reply    `json:"reply"`
	PerTask stage.Counters `json:"perTask"`
	Load    string         `json:"load"`            // the machine's, before the phase
	Error   string         `json:"error,omitempty"` // it could not be measured
}

// Report is a whole run.
type Report struct {
	At      time.Time `json:"at"`
	CPUs    int       `json:"cpus"`
	Kernel  string    `json:"kernel"`
	Tasks   int       `json:"tasks"`
	Reps    int       `json:"reps"`
	Rate    int       `json:"rate"` // tasks per second of the latency phase
	Seconds float64   `json:"seconds"`
	Loads   []string  `json:"loads"` // at the start of each repetition, and at the end
	Results []Result  `json:"results"`
	Asked   []Figure  `json:"asked"` // filled by Judge
}

// Value is a figure of one system in one repetition; ok is false when it was not measured.
type Value func(r *Report, system string, rep int) (v float64, ok bool)

// find is a result without an error.
func (r *Report) find(system string, rep int, phase rival.Phase) (Result, bool) {
	i := slices.IndexFunc(r.Results, func(x Result) bool {
		return x.System == system && x.Rep == rep && x.Phase == phase && x.Error == ""
	})
	if i < 0 {
		return Result{}, false
	}
	return r.Results[i], true
}

// Rate is tasks per second of a phase.
func Rate(phase rival.Phase) Value {
	return func(r *Report, system string, rep int) (float64, bool) {
		x, ok := r.find(system, rep, phase)
		if !ok || x.Reply.Seconds <= 0 {
			return 0, false
		}
		return float64(x.Reply.Tasks) / x.Reply.Seconds, true
	}
}

// CPU is how many tasks of a phase one second of processor time pays for, that of the system and its servers together:
// the rate on one core that does nothing else. Other load of the machine moves it little.
func CPU(phase rival.Phase) Value {
	return func(r *Report, system string, rep int) (float64, bool) {
		x, ok := r.find(system, rep, phase)
		micros := x.PerTask.ClientMicros + x.PerTask.ServerMicros
		if !ok || micros <= 0 {
			return 0, false
		}
		return 1e6 / micros, true
	}
}

// Combined is a rate from the first insert to the last end: submit, then drain; or a whole raw cycle.
func Combined(rate func(rival.Phase) Value) Value {
	return func(r *Report, system string, rep int) (float64, bool) {
		if v, ok := rate(rival.PhaseCycle)(r, system, rep); ok {
			return v, true
		}
		submit, ok1 := rate(rival.PhaseSubmit)(r, system, rep)
		drain, ok2 := rate(rival.PhaseDrain)(r, system, rep)
		if !ok1 || !ok2 {
			return 0, false
		}
		return 1 / (1/submit + 1/drain), true
	}
}

// Latency is a figure of the latency phase, milliseconds.
func Latency(of func(rival.Reply) float64) Value {
	return func(r *Report, system string, rep int) (float64, bool) {
		x, ok := r.find(system, rep, rival.PhaseLatency)
		if !ok || of(x.Reply) == 0 {
			return 0, false
		}
		return of(x.Reply), true
	}
}

// Spread is a figure over all repetitions.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"` // repetitions that measured it; 0: the rest says nothing
}

func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: stage.MedianOf(values), Min: slices.Min(values), Max: slices.Max(values), N: len(values)}
}

// Spread is a system's figure.
func (r *Report) Spread(system string, of Value) Spread {
	return r.over(func(rep int) (float64, bool) { return of(r, system, rep) })
}

// Ratio is that of two systems inside each repetition.
func (r *Report) Ratio(of Value, ours, theirs string) Spread {
	return r.over(func(rep int) (float64, bool) {
		a, ok1 := of(r, ours, rep)
		b, ok2 := of(r, theirs, rep)
		if !ok1 || !ok2 || b == 0 {
			return 0, false
		}
		return a / b, true
	})
}

func (r *Report) over(of func(rep int) (float64, bool)) Spread {
	var values []float64
	for rep := range r.Reps {
		if v, ok := of(rep); ok {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

// costs are the medians of the counters of a phase.
func (r *Report) costs(system string, phase rival.Phase) (stage.Counters, bool) {
	var all []stage.Counters
	for rep := range r.Reps {
		if x, ok := r.find(system, rep, phase); ok {
			all = append(all, x.PerTask)
		}
	}
	return stage.Median(all), len(all) > 0
}

// systems are those of the results, in their order.
func (r *Report) systems() (out []string) {
	for _, x := range r.Results {
		if !slices.Contains(out, x.System) {
			out = append(out, x.System)
		}
	}
	return out
}

// keeps is what a system's servers keep.
func (r *Report) keeps(system string) string {
	for _, x := range r.Results {
		if x.System == system {
			return x.Keeps
		}
	}
	return ""
}

// remarks are notes and errors of a system, each once.
func (r *Report) remarks(system string) (out []string) {
	for _, x := range r.Results {
		said := cmp.Or(x.Error, x.Reply.Note)
		if x.Error != "" {
			said = string(x.Phase) + " failed: " + said
		}
		if x.System == system && said != "" && !slices.Contains(out, said) {
			out = append(out, said)
		}
	}
	return out
}
