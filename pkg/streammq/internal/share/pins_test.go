package share

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPinnedPartitionsAreTheirMembersOwn(t *testing.T) {
	t.Parallel()
	a, b, c := MemberView{Name: "a", Pins: []int{0, 1, 9}}, MemberView{Name: "b"}, MemberView{Name: "c", Pins: []int{1}}
	for name, tc := range map[string]struct {
		leases        []string
		members       []MemberView
		self          string
		release, take []int
		targets       map[string]int
	}{
		"pins count in the shares": {
			make([]string, 6), []MemberView{a, b}, "a", nil, []int{0, 1, 2}, map[string]int{"a": 3, "b": 3},
		},
		"others keep away": {make([]string, 6), []MemberView{a, b}, "b", nil, []int{3, 4, 5}, map[string]int{"a": 3, "b": 3}},
		"who has one gives it up": {
			[]string{"b", "b", "b", "b", "a", "a"}, []MemberView{a, b}, "b", []int{0, 1}, nil, map[string]int{"a": 3, "b": 3},
		},
		"more pins than a fair share": {
			make([]string, 3), []MemberView{a, b}, "a", nil, []int{0, 1}, map[string]int{"a": 2, "b": 1},
		},
		"of two the owner keeps it": {
			[]string{"", "c", ""}, []MemberView{a, c}, "c", nil, []int{2}, map[string]int{"a": 1, "c": 2},
		},
		"of two the first by name gets it": {
			make([]string, 2), []MemberView{c, a}, "c", nil, nil, map[string]int{"a": 2},
		},
		"nobody alive has it": {[]string{"", ""}, []MemberView{b}, "b", nil, []int{0, 1}, map[string]int{"b": 2}},
		"a cap holds the pins": {
			make([]string, 6), []MemberView{{Name: "a", Pins: []int{3, 4}, Cap: 2}, b}, "b", nil, []int{0, 1, 2, 5}, map[string]int{"a": 2, "b": 4},
		},
	} {
		v := View{Leases: tc.leases, Members: tc.members}
		release, take := v.Plan(tc.self)
		require.Equal(t, tc.release, release, name)
		slices.Sort(take)
		require.Equal(t, tc.take, take, name)
		require.Equal(t, tc.targets, v.Targets(), name)
	}
	require.Equal(t, 1, View{Leases: make([]string, 3), Members: []MemberView{a, b, c}}.Conflicts())
	require.Zero(t, View{Leases: make([]string, 3), Members: []MemberView{a, b}}.Conflicts())
}

// pinsHold checks a settled world: each pinned partition is at a living member that pinned it, and shares are as even as that allows.
func (w *world) pinsHold() error {
	v := w.look()
	for partition, pinner := range v.pinned() {
		if pinner != "" && v.Leases[partition] != pinner {
			return fmt.Errorf("partition %d is %q's, pinned by %s", partition, v.Leases[partition], pinner)
		}
	}
	if !v.settled() {
		return fmt.Errorf("not settled: %v", v.Leases)
	}
	return nil
}

// Members with and without pins come and go: nobody takes what a member that it sees alive has pinned, the pins end where
// they belong, and nothing moves when nothing changes.
func TestBalanceWithPinsUnderChurn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		w := newWorld(24, seed)
		w.plan = func(v View, self string) (release, take []int) {
			release, take = v.Plan(self)
			for _, m := range v.Members {
				for _, partition := range m.Pins {
					if slices.Contains(take, partition) && m.Name != self {
						mine := slices.IndexFunc(v.Members, func(m MemberView) bool { return m.Name == self && slices.Contains(m.Pins, partition) })
						require.GreaterOrEqual(t, mine, 0, "%s takes partition %d that %s has pinned", self, partition, m.Name)
					}
				}
			}
			return release, take
		}
		w.join(0)
		for range 80 {
			names := w.names()
			switch w.rng.IntN(4) {
			case 0:
				w.join(0)
			case 1:
				w.join(0, w.rng.IntN(24), 24+w.rng.IntN(4)) // one of them is not there
			case 2:
				if len(names) > 1 {
					w.kill(names[w.rng.IntN(len(names))])
				}
			}
			w.pass(t, time.Duration(w.rng.IntN(30))*simStep)
		}
		w.pass(t, 40*time.Second+simLease+2*simRebalance)
		require.NoError(t, w.pinsHold(), "seed %d", seed)
		before := w.moves
		w.pass(t, 10*simRebalance)
		require.Equal(t, before, w.moves, "nothing moves when nothing changes")
	}
}
