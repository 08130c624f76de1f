// Package share says who is to own which partition: pure rules over what a member sees of its group.
package share

import (
	"cmp"
	"slices"
	"time"
)

// View is what a member sees of its group in one read.
type View struct {
	Leases  []string // owner of each partition, "" for a free one
	Members []MemberView
	Expiry  time.Duration // until the next lease of a dead member expires; negative: the dead have none
}

// MemberView is one member with a heartbeat.
type MemberView struct {
	Name string
	Cap  int           // most partitions that it takes; 0: any number
	Pins []int         // partitions that are its own while it lives
	Left time.Duration // until its heartbeat expires
}

// shares are what each member is to own.
type shares struct {
	pinned []string       // by partition: the live member whose own it is; "": it is dealt
	pins   map[string]int // number of these
	rest   map[string]int // target of the others
	owned  map[string]int // of the others, now
	ranked []MemberView   // who owns more first, ties by name
}

// shares gives a partition that live members have pinned to one of them: to its owner, else to the first by name. The rest is
// dealt one by one to the live member with the lowest target below its cap, its pins counted; ties go to the one
// that owns more, then by name. All members compute the same from the same view, and who releases down to its target
// and who takes up to it use the same number: so nothing is passed to and fro.
func (v View) shares() shares {
	s := shares{pinned: v.pinned(), pins: map[string]int{}, rest: map[string]int{}, owned: map[string]int{}, ranked: v.ranked()}
	left := 0
	for partition, owner := range v.Leases {
		if pinner := s.pinned[partition]; pinner != "" {
			s.pins[pinner]++
		} else {
			s.owned[owner]++
			left++
		}
	}
	targets := make([]int, len(s.ranked))
	for i, m := range s.ranked {
		targets[i] = s.pins[m.Name]
	}
	deal(s.ranked, targets, left)
	for i, m := range s.ranked {
		s.rest[m.Name] = targets[i] - s.pins[m.Name]
	}
	return s
}

// deal adds n partitions to the targets of ranked members.
func deal(ranked []MemberView, targets []int, n int) {
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

func (m MemberView) below(n int) bool { return m.Cap == 0 || n < m.Cap }

// pinned are the members whose own each partition is, "" for those that nobody alive has pinned.
func (v View) pinned() []string {
	pinned := make([]string, len(v.Leases))
	for _, m := range v.Members {
		for _, partition := range m.Pins {
			if partition >= len(pinned) {
				continue // not there yet
			}
			now, owner := pinned[partition], v.Leases[partition]
			if now == "" || m.Name == owner || now != owner && m.Name < now {
				pinned[partition] = m.Name
			}
		}
	}
	return pinned
}

// Conflicts is the number of partitions that more than one live member has pinned.
func (v View) Conflicts() int {
	claims := make([]int, len(v.Leases))
	n := 0
	for _, m := range v.Members {
		for _, partition := range m.Pins {
			if partition < len(claims) {
				if claims[partition]++; claims[partition] == 2 {
					n++
				}
			}
		}
	}
	return n
}

// Targets are how many partitions each member is to own.
func (v View) Targets() map[string]int {
	s := v.shares()
	targets := make(map[string]int, len(v.Members))
	for _, m := range v.Members {
		if n := s.pins[m.Name] + s.rest[m.Name]; n > 0 {
			targets[m.Name] = n
		}
	}
	return targets
}

// ranked are the members, who owns more first, ties by name.
func (v View) ranked() []MemberView {
	owned := v.Owned()
	members := slices.Clone(v.Members)
	slices.SortFunc(members, func(a, b MemberView) int {
		return cmp.Or(cmp.Compare(owned[b.Name], owned[a.Name]), cmp.Compare(a.Name, b.Name))
	})
	return members
}

// Owned is how many partitions each member owns, "" for the free ones.
func (v View) Owned() map[string]int {
	owned := map[string]int{}
	for _, owner := range v.Leases {
		owned[owner]++
	}
	return owned
}

// Unowned is the number of partitions that the caps of all members leave over.
func (v View) Unowned() int {
	left := len(v.Leases)
	for _, n := range v.Targets() {
		left -= n
	}
	return left
}

// Plan is what a member does now: it releases what others have pinned, and all that it owns above its target; or it takes free
// partitions below it, and those that it has pinned.
// The free ones are dealt too, so that members that see the same do not ask for the same partition.
func (v View) Plan(self string) (release, take []int) {
	s := v.shares()
	var mine, free []int
	for partition, owner := range v.Leases {
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
		want := min(max(0, s.rest[m.Name]-s.owned[m.Name]), len(free))
		if m.Name == self {
			return release, append(take, free[:want]...)
		}
		free = free[want:]
	}
	return release, take
}

// settled tells that nobody has anything to release or to take. One without a heartbeat is dead, or gives up what it has.
func (v View) settled() bool {
	s := v.shares()
	for partition, pinner := range s.pinned {
		if pinner != "" && v.Leases[partition] != pinner {
			return false
		}
	}
	owned, free := v.Owned(), s.owned[""]
	held := owned[""]
	for _, m := range s.ranked {
		held += owned[m.Name]
		if s.owned[m.Name] > s.rest[m.Name] || free > 0 && s.owned[m.Name] < s.rest[m.Name] {
			return false
		}
	}
	return held == len(v.Leases)
}

func NamesOf(members []MemberView) []string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	slices.Sort(names)
	return names
}

const (
	LookPause  = 50 * time.Millisecond  // after a look that found the group unsettled; doubles from look to look
	LookSpread = 2 * time.Millisecond   // a member: those who wait for the same moment do not all look at once
	maxSpread  = 250 * time.Millisecond // of all members
)

// Pace says when a member looks again at how the partitions are shared.
type Pace struct {
	Interval  time.Duration // at the latest
	Unsettled int           // looks in a row that failed, or found the group unsettled as the one before did
	Seen      View
}

// Next is the time from a look until the next one: when a heartbeat or a dead member's lease expires, and soon while
// somebody has to release or take something, ever later while nothing changes; chance is 0 … 1.
func (p *Pace) Next(v View, self string, chance float64) time.Duration {
	wait := p.Interval
	if !slices.Equal(v.Leases, p.Seen.Leases) || !slices.Equal(NamesOf(v.Members), NamesOf(p.Seen.Members)) {
		p.Unsettled = 0
	}
	p.Seen = v
	if v.settled() {
		p.Unsettled = 0
	} else {
		wait = p.Soon()
	}
	due := v.Expiry
	for _, m := range v.Members {
		if m.Name != self && (due < 0 || m.Left < due) {
			due = m.Left
		}
	}
	spread := min(LookSpread*time.Duration(len(v.Members)), maxSpread, p.Interval/4)
	if due >= 0 {
		// One ms later it is over; and no two looks follow each other without a pause.
		wait = min(wait, max(due+time.Millisecond, LookPause/2))
	}
	return min(wait+time.Duration(chance*float64(spread)), p.Interval)
}

// Soon is a pause that doubles from call to call, up to the interval.
func (p *Pace) Soon() time.Duration {
	wait := min(p.Interval, LookPause<<min(p.Unsettled, 16))
	p.Unsettled++
	return wait
}
