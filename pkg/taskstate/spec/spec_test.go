package spec_test

import (
	"flag"
	"testing"

	"github.com/millweir/millweir/pkg/taskstate/spec"
)

var full = flag.Bool("spec.full", false, "search the large worlds too: minutes, and gigabytes")

// limit ends a search that has grown beyond what the machine keeps.
const limit = 12_000_000

// both are the duties of one sweeper and one reclaimer, as two processes.
var both = [2]spec.Duties{spec.Sweeps | spec.Owed, spec.Settles}

// config is a world of one task, with changes.
func config(name string, f spec.Faults, change ...func(c *spec.Config)) spec.Config {
	c := spec.Config{Name: name, Tasks: 1, MaxAttempts: 1, MaxCrashes: 3, Duties: both, Outcomes: spec.MayFail, Faults: f}
	for _, ch := range change {
		ch(&c)
	}
	return c
}

func everyEnd(c *spec.Config)    { c.Outcomes = spec.MayAllFail }
func alwaysWell(c *spec.Config)  { c.Outcomes = 0 }
func twoAttempts(c *spec.Config) { c.MaxAttempts = 2 }
func twoCrashes(c *spec.Config)  { c.MaxCrashes = 2 }
func document(c *spec.Config)    { c.Document = true }
func twoTasks(c *spec.Config)    { c.Tasks = 2 }
func pins(c *spec.Config)        { c.Duties[1] |= spec.Pins }

// small are the worlds that every change is checked with. Together they reach every kind of step.
func small() []spec.Config {
	return []spec.Config{
		config("calm", spec.Faults{Throttles: 1}, everyEnd, twoAttempts, pins),
		config("crash", spec.Faults{Crashes: 2}),
		config("limit", spec.Faults{Crashes: 2}, twoCrashes, alwaysWell),
		config("pause", spec.Faults{Pauses: 1}, twoAttempts),
		config("unknown", spec.Faults{Unknown: 1, Crashes: 1}),
		config("unknown-solo", spec.Faults{Unknown: 1, Pauses: 1}, twoCrashes, alwaysWell),
		config("stop", spec.Faults{Stops: 1, Crashes: 1}),
		config("stop-solo", spec.Faults{Stops: 1, Pauses: 1}, twoCrashes, alwaysWell),
		config("duplicate", spec.Faults{Duplicates: 2}),
		config("flush", spec.Faults{Flushes: 1, Crashes: 1}),
		config("people", spec.Faults{Acts: 1, Replays: 1}),
		config("retry-now", spec.Faults{Acts: 1}, twoAttempts),
		config("sleep", spec.Faults{Sleeps: 1, Crashes: 1}, twoAttempts),
		config("restore", spec.Faults{Restores: 1, Pauses: 1}, alwaysWell),
		config("versions", spec.Faults{}, twoTasks, document, alwaysWell),
		config("versions-zombie", spec.Faults{Pauses: 1}, document),
		config("two", spec.Faults{}, twoTasks),
	}
}

// large are searched by hand: go test ./pkg/taskstate/spec -spec.full -timeout 2h.
func large() []spec.Config {
	return []spec.Config{
		config("crash+pause", spec.Faults{Crashes: 2, Pauses: 1}, twoCrashes),
		config("pause+fail", spec.Faults{Crashes: 1, Pauses: 1}, twoAttempts),
		config("unknown+crash", spec.Faults{Unknown: 2, Crashes: 1}, twoAttempts),
		config("unknown+solo", spec.Faults{Unknown: 1, Pauses: 1, Crashes: 1}, twoCrashes),
		config("stop+crash", spec.Faults{Stops: 2, Crashes: 1}),
		config("stop+solo", spec.Faults{Stops: 1, Pauses: 1, Crashes: 1}, twoCrashes, alwaysWell),
		config("duplicate+crash", spec.Faults{Duplicates: 2, Crashes: 2}),
		config("flush+pause", spec.Faults{Flushes: 1, Pauses: 1, Crashes: 1}),
		config("people+crash", spec.Faults{Acts: 1, Replays: 1, Crashes: 1}),
		config("people+pause", spec.Faults{Acts: 1, Replays: 1, Pauses: 1}),
		config("sleep+pause", spec.Faults{Sleeps: 1, Pauses: 1, Crashes: 1}, twoCrashes),
		config("sleep+unknown", spec.Faults{Sleeps: 2, Unknown: 1}),
		config("restore+pause", spec.Faults{Restores: 1, Pauses: 1}, twoAttempts),
		config("versions+fail", spec.Faults{}, twoTasks, document),
		config("versions+people", spec.Faults{Pauses: 1, Acts: 1, Replays: 1}, document, alwaysWell),
		config("two+crash", spec.Faults{Crashes: 1}, twoTasks, alwaysWell),
	}
}

// rules must each have judged something.
var rules = []string{
	"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I17", "I18", "I23", "I24", "I25", "I26",
	"D2", "D4", "D5", "D6", "D8", "L1", "log I1", "log I3", "log I4", "log I5", "log I6", "log I7", "log I8", "log I9", "log I10", "log I11",
}

// search runs one world and shows its figures.
func search(t *testing.T, c spec.Config, stop bool) *spec.Search {
	t.Helper()
	s, err := spec.New(c).Run(limit, stop)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Report(t.Output(), c.Name); err != nil {
		t.Fatal(err)
	}
	if s.States < 2 || s.Full > 0 {
		t.Fatalf("%d states, %d steps without room: the search is not complete", s.States, s.Full)
	}
	return s
}

func TestNoOrderOfStepsBreaksARule(t *testing.T) {
	t.Parallel()
	worlds := small()
	if *full {
		worlds = append(worlds, large()...)
	}
	reached, judged, states, searched := map[spec.Kind]int{}, map[string]int{}, 0, 0
	for _, c := range worlds {
		t.Run(c.Name, func(t *testing.T) { // one after the other: each wants memory
			s := search(t, c, false)
			for _, v := range s.Violations {
				t.Error(v)
			}
			for kind, n := range s.Reached {
				reached[spec.Kind(kind)] += n
			}
			for rule, n := range s.Judged {
				judged[rule] += n
			}
			states += s.States
			searched++
		})
	}
	t.Logf("%d states in %d worlds; judged: %v", states, searched, judged)
	if searched < len(worlds) {
		return // -run chose some of them
	}
	for _, kind := range spec.Kinds() {
		if reached[kind] == 0 {
			t.Errorf("no step %q was ever possible: the worlds are too small", kind)
		}
	}
	for _, rule := range rules {
		if judged[rule] == 0 {
			t.Errorf("rule %s has judged nothing", rule)
		}
	}
}
