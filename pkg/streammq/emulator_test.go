package streammq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// What the emulated Redis cannot do, with a look that tells whether it still cannot.
var emulatorLacks = map[string]func(r *rig) bool{
	"XGROUP SETID": func(r *rig) bool {
		return ask(r.t, r.client, "XGROUP", "SETID", r.topic, "g", "$").Error() != nil
	},
	"entries-read": func(r *rig) bool {
		for range 2 {
			r.do("XADD", r.topic, "*", "payload", "x")
		}
		return groupField(r, "entries-read") != 1
	},
	"claims that are no delivery": func(r *rig) bool {
		r.do("XCLAIM", r.topic, "g", "c", "0", "1-1", "JUSTID")
		entries, err := ask(r.t, r.client, "XPENDING", r.topic, "g", "-", "+", "1").ToArray()
		require.NoError(r.t, err)
		parts, err := entries[0].ToArray()
		require.NoError(r.t, err)
		deliveries, err := parts[3].AsInt64()
		return err != nil || deliveries != 1
	},
	"names of consumers without entries": func(r *rig) bool {
		r.do("XGROUP", "CREATECONSUMER", r.topic, "g", "quiet")
		consumers, err := ask(r.t, r.client, "XINFO", "CONSUMERS", r.topic, "g").ToArray()
		require.NoError(r.t, err)
		info, err := consumers[len(consumers)-1].AsMap()
		require.NoError(r.t, err)
		m := info["idle"]
		idle, err := m.AsInt64()
		return len(consumers) != 2 || err != nil || idle < 0
	},
}

func groupField(r *rig, name string) int64 {
	groups, err := ask(r.t, r.client, "XINFO", "GROUPS", r.topic).ToArray()
	require.NoError(r.t, err)
	info, err := groups[0].AsMap()
	require.NoError(r.t, err)
	m := info[name]
	n, err := m.AsInt64()
	if err != nil {
		return -1
	}
	return n
}

// emulatorCannot names the tests that the emulator is left out of, each with what it lacks.
var emulatorCannot = map[string]string{
	"TestRetentionDropsNothingThatAGroupHasNotFinished":        "XGROUP SETID",
	"TestLargePayloadLiesBesideTheStreamUntilAllGroupsAreDone": "XGROUP SETID",
	"TestReadAheadIsTakenOverInOrder":                          "entries-read",
	"TestStopLeavesWhatWasReadAhead":                           "entries-read",
	"TestNamesOfDeadConsumersAreRemoved":                       "names of consumers without entries",
	"TestJanitorMovesWhatTheDeadHold":                          "names of consumers without entries",
	"TestRunningEntriesAreNotClaimed":                          "claims that are no delivery", // a claimer's own idle reset is refused
}

// What the emulator lacks must be lacking still, and a real server must have it; otherwise the list is to be changed.
func TestEmulatorLacksWhatIsListed(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, lack := range emulatorCannot {
		listed[lack] = true
	}
	for name, lacks := range emulatorLacks {
		require.True(t, listed[name], "no test needs %s", name)
		for _, h := range []home{emulated, homes[0]} {
			r := newRigIn(t, h)
			r.do("XGROUP", "CREATE", r.topic, "g", "0", "MKSTREAM")
			r.do("XADD", r.topic, "1-1", "payload", "x")
			r.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", r.topic, ">")
			require.Equal(t, h.name == emulated.name, lacks(r), "%s on %s", name, h.name)
		}
		delete(listed, name)
	}
	require.Empty(t, listed, "each has a look")
}

func TestFollowingID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"0-0": "0-1", "1700000000000-9": "1700000000000-10", "7-18446744073709551615": "8-0",
		"18446744073709551615-18446744073709551615": "18446744073709551615-18446744073709551615", "none": "none", "": "",
	} {
		require.Equal(t, want, stream.Following(id))
	}
}
