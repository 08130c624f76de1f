package spec_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/millweir/millweir/pkg/taskstate/mutant"
	"github.com/millweir/millweir/pkg/taskstate/spec"
)

var full = flag.Bool("spec.full", false, "search the large worlds too: minutes, and gigabytes")

// limit ends a search that has grown beyond what the machine keeps: a world whose growth nobody noticed.
const limit = 30_000_000

// both are the duties of one sweeper and one reclaimer, as two processes.
var both = [2]spec.Duties{spec.Sweeps | spec.Owed, spec.Settles}

// config is a world of one task, with a change.
func config(name string, f spec.Faults, change ...func(c *spec.Config)) spec.Config {
	c := spec.Config{Name: name, Tasks: 1, MaxAttempts: 2, MaxCrashes: 3, Duties: both, Outcomes: spec.MayFail, Faults: f}
	for _, ch := range change {
		ch(&c)
	}
	return c
}

func everyEnd(c *spec.Config)   { c.Outcomes = spec.MayAllFail }
func oneAttempt(c *spec.Config) { c.MaxAttempts = 1 }
func twoCrashes(c *spec.Config) { c.MaxCrashes = 2 }
func document(c *spec.Config)   { c.Document = true }
func twoTasks(c *spec.Config)   { c.Tasks = 2 }
func alwaysWell(c *spec.Config) { c.Outcomes = spec.MaySucceedOn }
func pins(c *spec.Config)       { c.Duties[1] |= spec.Pins }

// small are the worlds that every change is checked with. Together they reach every kind of step.
func small() []spec.Config {
	return []spec.Config{
		config("calm", spec.Faults{}, everyEnd, pins),
		config("crash", spec.Faults{Crashes: 2}, oneAttempt),
		config("limit", spec.Faults{Crashes: 2, Pauses: 1}, twoCrashes, alwaysWell),
		config("pause", spec.Faults{Crashes: 1, Pauses: 1}, oneAttempt),
		config("pause-fail", spec.Faults{Pauses: 1}),
		config("unknown", spec.Faults{Unknown: 2, Crashes: 1}, oneAttempt),
		config("unknown-solo", spec.Faults{Unknown: 1, Pauses: 1, Crashes: 1}, twoCrashes, alwaysWell),
		config("stop", spec.Faults{Stops: 2, Crashes: 1}, oneAttempt),
		config("stop-solo", spec.Faults{Stops: 1, Pauses: 1, Crashes: 1}, twoCrashes, alwaysWell),
		config("duplicate", spec.Faults{Duplicates: 2, Crashes: 1}, oneAttempt),
		config("flush", spec.Faults{Flushes: 1, Crashes: 1}, oneAttempt),
		config("people", spec.Faults{Acts: 1, Replays: 1, Crashes: 1}, oneAttempt),
		config("people-pause", spec.Faults{Acts: 1, Replays: 1, Pauses: 1}, oneAttempt),
		config("restore", spec.Faults{Restores: 1, Pauses: 1}, oneAttempt),
		config("versions", spec.Faults{}, twoTasks, document, oneAttempt),
		config("versions-zombie", spec.Faults{Pauses: 1, Acts: 1, Replays: 1}, document, oneAttempt),
		config("two", spec.Faults{}, twoTasks),
	}
}

func TestX(t *testing.T) {
	for _, c := range small() {
		s, err := spec.New(c).Run(2_000_000, false)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := s.Report(t.Output(), c.Name); err != nil {
			t.Fatal(err)
		}
		t.Log("full", s.Full, "stuck", s.Stuck)
	}
	_ = slices.Contains[[]int]
	_ = mutant.Is
	_ = full
	_ = limit
}
