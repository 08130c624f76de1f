package streammq

import (
	"cmp"
	"slices"
	"time"
)

// view is what a member sees of its group in one read.
type view struct {
	leases  []string // owner of each partition, "" for a free one
	members []memberView
	expiry  time.Duration // until the next lease of a dead member expires; negative: the dead have none
}

// memberView is one member with a heartbeat.
type memberView struct {
	name string
	cap  int           // most partitions that it takes; 0: any number
	pins []int         // partitions that are its own while it lives
	left time.Duration // until its heartbeat expires
}

// shares are what each member is to own.
type shares struct {
	pinned []string       // by partition: the live member whose own it is; "": it is dealt
	pins   map[string]int // number of these
	rest   map[string]int // target of the others
	owned  map[string]int // of the others, now
	ranked []memberView   // who owns more first, ties by name
}

// shares gives a partition that live members have pinned to one of them: to its owner, else to the first by name. The rest is
// dealt one by one to the live member with the lowest target below its cap, its pins counted; ties go to the one
// that owns more, then by name. All members compute the same from the same view, and who releases down to its target
// and who takes up to it use the same number: so nothing is passed to and fro.
func (v view) shares() shares {
	s := shares{pinned: v.pinned(), pins: map[string]int{}, rest: map[string]int{}, owned: map[string]int{}, ranked: v.ranked()}
	left := 0
	for partition, owner := range v.leases {
		if pinner := s.pinned[partition]; pinner != "" {
			s.pins[pinner]++
		} else {
			s.owned[owner]++
			left++
		}
	}
	targets := make([]int, len(s.ranked))
	for i, m := range s.ranked {
		targets[i] = s.pins[m.name]
	}
	deal(s.ranked, targets, left)
	for i, m := range s.ranked {
		s.rest[m.name] = targets[i] - s.pins[m.name]
	}
	return s
}

// deal adds n partitions to the targets of ranked members.
func deal(ranked []memberView, targets []int, n int) {
	for n > 0 {
		level := -1 // the lowest target of those below their cap
		for i, m := range ranked {
			if m.below(targets[i]) && (level < 0 || targets[i] < level) {
				level = targets[i]
			}
		}
		if level < 0 {
			return
		}
		for i, m := range ranked {
			if n > 0 && targets[i] == level && m.below(level) {
				targets[i]++
				n--
			}
		}
	}
}

func (m memberView) below(n int) bool { return m.cap == 0 || n < m.cap }

func (s shares) target(member string) int { return s.pins[member] + s.rest[member] }

// pinned are the members whose own each partition is, "" for those that nobody alive has pinned.
func (v view) pinned() []string {
	pinned := make([]string, len(v.leases))
	for _, m := range v.members {
		for _, partition := range m.pins {
			if partition >= len(pinned) {
				continue // not there yet
			}
			now, owner := pinned[partition], v.leases[partition]
			if now == "" || m.name == owner || now != owner && m.name < now {
				pinned[partition] = m.name
			}
		}
	}
	return pinned
}

// conflicts is the number of partitions that more than one live member has pinned.
func (v view) conflicts() int {
	claims := make([]int, len(v.leases))
	n := 0
	for _, m := range v.members {
		for _, partition := range m.pins {
			if partition < len(claims) {
				if claims[partition]++; claims[partition] == 2 {
					n++
				}
			}
		}
	}
	return n
}

// targets are how many partitions each member is to own.
func (v view) targets() map[string]int {
	s := v.shares()
	targets := make(map[string]int, len(v.members))
	for _, m := range v.members {
		if n := s.target(m.name); n > 0 {
			targets[m.name] = n
		}
	}
	return targets
}

// ranked are the members, who owns more first, ties by name.
func (v view) ranked() []memberView {
	owned := v.owned()
	members := slices.Clone(v.members)
	slices.SortFunc(members, func(a, b memberView) int {
		return cmp.Or(cmp.Compare(owned[b.name], owned[a.name]), cmp.Compare(a.name, b.name))
	})
	return members
}

// owned is how many partitions each member owns, "" for the free ones.
func (v view) owned() map[string]int {
	owned := map[string]int{}
	for _, owner := range v.leases {
		owned[owner]++
	}
	return owned
}

// unowned is the number of partitions that the caps of all members leave over.
func (v view) unowned() int {
	left := len(v.leases)
	for _, n := range v.targets() {
		left -= n
	}
	return left
}

// plan is what a member does now: it releases what others have pinned, and all that it owns above its target; or it takes free
// partitions below it, and those that it has pinned.
// The free ones are dealt too, so that members that see the same do not ask for the same partition.
func (v view) plan(self string) (release, take []int) {
	s := v.shares()
	var mine, free []int
	for partition, owner := range v.leases {
		switch pinner := s.pinned[partition]; {
		case pinner != "" && pinner != self && owner == self:
			release = append(release, partition)
		case pinner == self && owner == "":
			take = append(take, partition)
		case pinner != "":
		case owner == self:
			mine = append(mine, partition)
		case owner == "":
			free = append(free, partition)
		}
	}
	if len(mine) > s.rest[self] {
		return append(release, mine[s.rest[self]:]...), take
	}
	for _, m := range s.ranked {
		want := min(max(0, s.rest[m.name]-s.owned[m.name]), len(free))
		if m.name == self {
			return release, append(take, free[:want]...)
		}
		free = free[want:]
	}
	return release, take
}

// settled tells that nobody has anything to release or to take. One without a heartbeat is dead, or gives up what it has.
func (v view) settled() bool {
	s := v.shares()
	for partition, pinner := range s.pinned {
		if pinner != "" && v.leases[partition] != pinner {
			return false
		}
	}
	owned, free := v.owned(), s.owned[""]
	held := owned[""]
	for _, m := range s.ranked {
		held += owned[m.name]
		if s.owned[m.name] > s.rest[m.name] || free > 0 && s.owned[m.name] < s.rest[m.name] {
			return false
		}
	}
	return held == len(v.leases)
}

func namesOf(members []memberView) []string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	slices.Sort(names)
	return names
}
