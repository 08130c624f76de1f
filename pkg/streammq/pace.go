package streammq

import (
	"slices"
	"time"
)

const (
	lookPause  = 50 * time.Millisecond  // after a look that found the group unsettled; doubles from look to look
	lookSpread = 2 * time.Millisecond   // a member: those who wait for the same moment do not all look at once
	maxSpread  = 250 * time.Millisecond // of all members
)

// pace says when a member looks again at how the partitions are shared.
type pace struct {
	interval  time.Duration // at the latest
	unsettled int           // looks in a row that failed, or found the group unsettled as the one before did
	seen      view
}

// next is the time from a look until the next one: when a heartbeat or a dead member's lease expires, and soon while
// somebody has to release or take something, ever later while nothing changes; chance is 0 … 1.
func (p *pace) next(v view, self string, chance float64) time.Duration {
	wait := p.interval
	if !slices.Equal(v.leases, p.seen.leases) || !slices.Equal(namesOf(v.members), namesOf(p.seen.members)) {
		p.unsettled = 0
	}
	p.seen = v
	if v.settled() {
		p.unsettled = 0
	} else {
		wait = p.soon()
	}
	due := v.expiry
	for _, m := range v.members {
		if m.name != self && (due < 0 || m.left < due) {
			due = m.left
		}
	}
	spread := min(lookSpread*time.Duration(len(v.members)), maxSpread, p.interval/4)
	if due >= 0 {
		// One ms later it is over; and no two looks follow each other without a pause.
		wait = min(wait, max(due+time.Millisecond, lookPause/2))
	}
	return min(wait+time.Duration(chance*float64(spread)), p.interval)
}

// soon is a pause that doubles from call to call, up to the interval.
func (p *pace) soon() time.Duration {
	wait := min(p.interval, lookPause<<min(p.unsettled, 16))
	p.unsettled++
	return wait
}
