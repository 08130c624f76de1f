package share

import (
	"slices"
	"time"
)

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
