package history

import (
	"fmt"
	"slices"
	"strings"
)

// Example is one violation with what is needed to understand it.
type Example struct {
	Task    string `json:"task,omitempty"` // or document, version, vector: what it is about
	Problem string `json:"problem"`
	History string `json:"history,omitempty"` // the task's log up to the violation, one transition a line
}

// Result is one rule's word.
type Result struct {
	Rule       string    `json:"rule"`
	Sentence   string    `json:"sentence"`
	Judged     int64     `json:"judged"`     // events it had a say in; 0: it proved nothing
	Violations int64     `json:"violations"` // all of them
	Examples   []Example `json:"examples,omitempty"`
	NotJudged  string    `json:"notJudged,omitempty"` // why it could not judge; empty: it could
}

// Report is every rule's word, in the order in which they were declared.
type Report []Result

// Tally collects the words of rules; package fsck counts its own rules with it too. It is not safe for concurrent use.
type Tally struct {
	results  []*Result
	byID     map[string]*Result
	examples int
}

// NewTally makes a Tally that keeps so many examples of each rule.
func NewTally(examples int) *Tally { return &Tally{byID: map[string]*Result{}, examples: examples} }

// Declare makes a rule known, so that it is in the report even when it judges nothing.
func (t *Tally) Declare(id, sentence string) {
	if t.byID[id] != nil {
		return
	}
	r := &Result{Rule: id, Sentence: sentence}
	t.byID[id] = r
	t.results = append(t.results, r)
}

// Judged counts events that a declared rule had a say in.
func (t *Tally) Judged(id string, n int64) { t.byID[id].Judged += n }

// NotJudged says why a declared rule could not judge.
func (t *Tally) NotJudged(id, why string) { t.byID[id].NotJudged = why }

// Violation notes that a declared rule was broken; words, when not nil, is asked for the history of the first few only.
func (t *Tally) Violation(id, about, problem string, words func() string) {
	r := t.byID[id]
	r.Violations++
	if len(r.Examples) >= t.examples {
		return
	}
	e := Example{Task: about, Problem: problem}
	if words != nil {
		e.History = words()
	}
	r.Examples = append(r.Examples, e)
}

// Report returns a copy of the words so far.
func (t *Tally) Report() Report {
	out := make(Report, len(t.results))
	for i, r := range t.results {
		out[i] = *r
		out[i].Examples = slices.Clone(r.Examples)
	}
	return out
}

// Violations is the number of violations of all rules.
func (r Report) Violations() int64 {
	var n int64
	for _, one := range r {
		n += one.Violations
	}
	return n
}

// Rule returns one rule's word; the zero Result when it is not in the report.
func (r Report) Rule(id string) Result {
	for _, one := range r {
		if one.Rule == id {
			return one
		}
	}
	return Result{}
}

// RequireJudged returns an error that names those of the rules that judged nothing.
func (r Report) RequireJudged(ids ...string) error {
	var idle []string
	for _, id := range ids {
		switch one := r.Rule(id); {
		case one.Rule == "":
			idle = append(idle, id+" (unknown rule)")
		case one.NotJudged != "":
			idle = append(idle, fmt.Sprintf("%s (%s)", id, one.NotJudged))
		case one.Judged == 0:
			idle = append(idle, id)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return fmt.Errorf("rules that judged nothing: %s", strings.Join(idle, ", "))
}

// Err returns nil when nothing was violated, else an error with the first examples and their histories.
func (r Report) Err() error {
	if r.Violations() == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations", r.Violations())
	for _, one := range r {
		if one.Violations == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s (%s): %d", one.Rule, one.Sentence, one.Violations)
		for _, e := range one.Examples {
			fmt.Fprintf(&b, "\n  %s: %s", e.Task, e.Problem)
			if e.History != "" {
				b.WriteString("\n    " + strings.ReplaceAll(strings.TrimSpace(e.History), "\n", "\n    "))
			}
		}
	}
	return fmt.Errorf("%s", b.String())
}
