package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millweir/millweir/pkg/taskstate/spec"
)

// Every rule of the design that is taken away must show itself as a broken rule, with a way there: so the search checks something.
func TestEveryMissingRuleIsFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		missing spec.Rule
		finds   string // rules, any of which may be the first
		world   spec.Config
	}{
		{spec.FenceInFinish, "I4", config("", spec.Faults{Pauses: 1}, alwaysWell)},
		{spec.FenceInHeartbeat, "I4", config("", spec.Faults{Pauses: 2, Crashes: 1})},
		{spec.LeaseInTakeover, "I6", config("", spec.Faults{}, alwaysWell)},
		{spec.LogInTransaction, "I2", config("", spec.Faults{})},
		{spec.AckAfterCommit, "I17", config("", spec.Faults{})},
		{spec.DeadLetterBeforeAck, "I18", config("", spec.Faults{})},
		{spec.PartsBeforeSwitch, "I25", config("", spec.Faults{}, document)},
		{spec.OldUntilNew, "I24", config("", spec.Faults{}, document, twoTasks)},
		{spec.FreeHandBack, "I7", config("", spec.Faults{Stops: 1})},
		{spec.FreshReplay, "I7", config("", spec.Faults{Replays: 1})},
		{spec.EpochInToken, "I4", config("", spec.Faults{Pauses: 1, Restores: 1}, alwaysWell)},
		{spec.FenceInEffect, "I26", config("", spec.Faults{Pauses: 1}, document, alwaysWell)},
		{spec.DueInClaim, "I10", config("", spec.Faults{}, twoAttempts)},
		{spec.UploadOrder, "I23", config("", spec.Faults{}, document, twoTasks)},
		{spec.OneCopy, "D4", config("", spec.Faults{Stops: 1, Crashes: 1})},
		{spec.FenceInMark, "I18", config("", spec.Faults{Pauses: 1, Replays: 1, Crashes: 1})},
		{spec.WatermarkSweep, "L1", config("", spec.Faults{Crashes: 1})},
		{spec.OwedSweep, "L1", config("", spec.Faults{Crashes: 1, Flushes: 1})},
		{spec.Settling, "L1", config("", spec.Faults{Crashes: 1})},
		{spec.RecoverySweep, "L1", config("", spec.Faults{}, twoAttempts)},
		{spec.ReplayCancelsDebt, "I18", config("", spec.Faults{Replays: 1})},
		{spec.ReservationIsNoClaim, "D2", config("", spec.Faults{Unknown: 1, Pauses: 1}, twoCrashes, alwaysWell)},
		{spec.TakeoverByAnother, "D6", config("", spec.Faults{Pauses: 1}, alwaysWell)},
		{spec.RestAfterStandstill, "D6", config("", spec.Faults{Sleeps: 1}, alwaysWell)},
	} {
		t.Run(tt.missing.String(), func(t *testing.T) {
			t.Parallel()
			tt.world.Name, tt.world.Without = "no "+tt.missing.String(), tt.missing
			s, err := spec.New(tt.world).Run(limit, true)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Violations) == 0 {
				t.Fatalf("nothing noticed that %s is missing (%d states)", tt.missing, s.States)
			}
			var rules []string
			for _, v := range s.Violations {
				rules = append(rules, v.Rule)
			}
			if !strings.Contains(" "+strings.Join(rules, " ")+" ", " "+tt.finds+" ") {
				t.Errorf("found by %v, want %s among them", rules, tt.finds)
			}
			if !testing.Verbose() {
				return
			}
			t.Log(fmt.Sprintf("%d states, found by %v\n", s.States, rules), s.Violations[0])
		})
	}
}
