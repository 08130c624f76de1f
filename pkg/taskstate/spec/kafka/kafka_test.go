package kafka_test

import (
	"flag"
	"testing"

	"github.com/millweir/millweir/pkg/taskstate/spec/kafka"
)

// limit ends a search that has grown beyond what the machine keeps.
const limit = 6_000_000

var full = flag.Bool("kafka.full", false, "search the large worlds too: minutes, and gigabytes")

// one is a world of one task and one relay.
func one(name string, f kafka.Faults) kafka.Config {
	return kafka.Config{Name: name, Tasks: 1, Relays: 1, Fails: true, Faults: f}
}

// well is one whose runs never fail.
func well(name string, f kafka.Faults) kafka.Config {
	c := one(name, f)
	c.Fails = false
	return c
}

// relays is well with two relays.
func relays(name string, f kafka.Faults) kafka.Config {
	c := well(name, f)
	c.Relays = 2
	return c
}

// small are the worlds that every change is checked with.
func small() []kafka.Config {
	return []kafka.Config{
		one("calm", kafka.Faults{}),
		one("crash", kafka.Faults{Crashes: 1}),
		one("letters", kafka.Faults{Outages: 1}),
		well("crashes", kafka.Faults{Crashes: 2}),
		well("pause", kafka.Faults{Pauses: 1}),
		well("rebalance", kafka.Faults{Rebalances: 1, Crashes: 1}),
		well("stop", kafka.Faults{Stops: 1}),
		well("tail", kafka.Faults{Tails: 1, Crashes: 1}),
		well("replay", kafka.Faults{Cancels: 1, Replays: 1}),
		well("refusal", kafka.Faults{Refusals: 1, Outages: 1}),
		relays("relays", kafka.Faults{Crashes: 1}),
		relays("relays-outage", kafka.Faults{Outages: 1}),
		relays("relays-reply", kafka.Faults{Replies: 1}),
	}
}

// large are searched by hand: go test ./pkg/taskstate/spec/kafka -kafka.full -timeout 1h.
func large() []kafka.Config {
	return []kafka.Config{
		well("pause+rebalance", kafka.Faults{Pauses: 1, Rebalances: 1}),
		well("pause+crash", kafka.Faults{Pauses: 1, Crashes: 1}),
		well("stop+crash", kafka.Faults{Stops: 1, Crashes: 1}),
		one("replay+fail", kafka.Faults{Cancels: 1, Replays: 1}),
		relays("relays-pause", kafka.Faults{Pauses: 1, Outages: 1}),
	}
}

func TestNoOrderOfStepsBreaksARule(t *testing.T) {
	t.Parallel()
	worlds := small()
	if *full {
		worlds = append(worlds, large()...)
	}
	states := 0
	for _, c := range worlds {
		t.Run(c.Name, func(t *testing.T) { // one after the other: each wants memory
			s, err := kafka.New(c).Run(limit, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range s.Violations {
				t.Error(v)
			}
			if s.Full > 0 || s.Rest == 0 {
				t.Errorf("%d steps without room, %d states at rest: the search is not complete", s.Full, s.Rest)
			}
			t.Logf("%8d states %9d steps depth %d", s.States, s.Steps, s.Depth)
			states += s.States
		})
	}
	t.Logf("%d states", states)
}

// Every rule that is taken away must show itself, with a way there: so the search checks something.
func TestEveryMissingRuleIsFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		missing kafka.Rule
		finds   string
		world   kafka.Config
	}{
		{kafka.MarkAfterAck, "I16", well("", kafka.Faults{})},
		{kafka.MarkComparesLease, "I16", relays("", kafka.Faults{Pauses: 1, Outages: 1})},
		{kafka.SentAtAfterAck, "D5", well("", kafka.Faults{})},
		{kafka.EventInTransaction, "I18", one("", kafka.Faults{Crashes: 1})},
		{kafka.OffsetAfterOutcome, "I21", well("", kafka.Faults{})},
		{kafka.FenceInFinish, "I4", well("", kafka.Faults{Pauses: 1})},
		{kafka.WatermarkSweep, "L1", well("", kafka.Faults{Tails: 1})},
		{kafka.NowBeforeBroker, "D5", well("", kafka.Faults{})},
		{kafka.UnsentIsNotLost, "D5", well("", kafka.Faults{})},
		{kafka.OldDeathsDoNotCount, "L1", well("", kafka.Faults{Cancels: 1, Replays: 1, Refusals: 1, Tails: 1})},
		{kafka.RetentionSparesQueued, "D5", well("", kafka.Faults{})},
		{kafka.Revive, "L1", well("", kafka.Faults{Outages: 1})},
		{kafka.RecoverySweep, "L1", well("", kafka.Faults{Crashes: 1})},
	} {
		t.Run(tt.missing.String(), func(t *testing.T) {
			t.Parallel()
			tt.world.Name, tt.world.Without = "no "+tt.missing.String(), tt.missing
			s, err := kafka.New(tt.world).Run(limit, true)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Violations) == 0 {
				t.Fatalf("nothing noticed that %s is missing (%d states)", tt.missing, s.States)
			}
			if got := s.Violations[0].Rule; got != tt.finds {
				t.Errorf("found by %q, want %s", got, tt.finds)
			}
			t.Log(s.Violations[0])
		})
	}
}
