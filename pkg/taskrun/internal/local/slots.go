// Package local is what one process knows of itself: its slots, claims, calls in flight, health and figures.
package local

import (
	"sync"
	"time"
)

// Slots counts who uses how many of a process's slots.
//
// New deliveries and recovery share them: while deliveries wait, recovery has at most half (rounded up),
// and as much as that is kept for it when it has work; otherwise it may have all (design D4).
type Slots struct {
	mu              sync.Mutex
	total           int
	most            int        // what total and extra may come to; total: they are fixed
	extra           int        // beyond total, for a backlog of short tasks
	short, long     int        // runs that have ended since they were judged last
	claiming        int        // granted to claims under way
	outcomes        func() int // how many wait
	usable          int        // at most so many run: fewer than total after a fault of the process
	went            int        // tasks that succeeded since usable grew
	lost            int        // written off: their runs ignore that they were cancelled
	main            int        // run tasks that new deliveries brought
	Recovery        int        // run tasks that recovery found
	reading         int        // asked for by the reads in flight
	lanes           int        // loops that read or claim now
	waiting         bool       // the last read was full: more deliveries wait
	recoveryWaiting bool       // recovery knows of work and had no slot for it
	yielded         bool       // with one slot in all: the last one went to recovery
	changed         signal
}

// maxRead is the most deliveries of one read. Of a backlog a second lane takes no fewer at a time.
const maxRead = 500

// shortRun is the longest run, with its wait for a processor, of a short task: more slots are no help to longer ones.
const shortRun = 20 * time.Millisecond

// NewSlots returns n free slots, which follow a backlog of short tasks up to most; most n: they are fixed.
// outcomes counts those that wait.
func NewSlots(n, most int, outcomes func() int) *Slots {
	return &Slots{total: n, usable: n, most: most, outcomes: outcomes}
}

// share is recovery's part while deliveries wait.
func (s *Slots) share() int { return (s.usable + 1) / 2 }

// limit is how many tasks may run at once now.
func (s *Slots) limit() int { return min(s.total-s.lost, s.usable) + s.extra }

// free counts slots that run nothing. Outcomes beyond one for each slot keep theirs.
func (s *Slots) free() int {
	n := s.limit() - s.main - s.Recovery
	if s.most > s.total {
		n -= max(0, s.outcomes()-s.limit())
	}
	return n
}

// follow judges, before a read of a backlog, what has run since the last time. Of short tasks twice as many may be claimed, since
// their number limits the claims. Where long ones fill the slots, half of the extra ones go; where most are long, after a fault,
// or with slots written off, all of them.
func (s *Slots) follow() {
	running := s.main - s.claiming + s.Recovery
	switch limit := s.limit(); {
	case s.usable < s.total || s.lost > 0 || s.long > s.short:
		s.extra = 0
	case running > limit/4*3:
		s.extra /= 2
	case s.short < limit/4 || s.outcomes() > limit:
		return // too few to judge by, or their commits are what limits the claims
	case s.long <= s.short/16:
		s.extra = min(2*limit, s.most) - s.total
	}
	s.short, s.long = 0, 0
}

// Shrink halves the number of tasks that run at once: so many were too much for the process.
func (s *Slots) Shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usable, s.went, s.extra = max(1, min(s.usable, s.main+s.Recovery)/2), 0, 0
}

// Grow counts a task that succeeded: after as many as run at once one more may.
func (s *Slots) Grow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable == s.total {
		return
	}
	if s.went++; s.went >= s.usable {
		s.usable, s.went = s.usable+1, 0
		s.changed.ring()
	}
}

// Limit returns how many tasks may run at once, without the slots that are written off.
func (s *Slots) Limit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit()
}

// UsableNow returns how many tasks may run at once.
func (s *Slots) UsableNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable + s.extra
}

// BeginRead returns how many deliveries may be read; endRead and endLane must follow when it is not 0, else changed is closed at the
// next change. more tells that the last read was full.
func (s *Slots) BeginRead() (n int, more bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.waiting: // a backlog is what they are for, and what a read under way may bring
		s.extra = min(s.extra, max(0, s.main+s.Recovery+s.reading-(s.limit()-s.extra)))
	case s.reading == 0 && s.most > s.total && s.readable() > 0:
		s.follow()
	}
	n = s.readable()
	if n <= 0 || (s.waiting && s.lanes > 0 && n < maxRead) { // one lane takes more at a time than two
		return 0, s.waiting, s.changed.wait()
	}
	s.reading += n
	s.lanes++
	return n, s.waiting, nil
}

// readable counts the deliveries that one read may bring; below 1: none.
func (s *Slots) readable() int { return min(s.free()-s.kept()-s.reading, maxRead) }

// fewSlots is a number of slots for which a claim of many is not worth a wait.
const fewSlots = 16

// Batching reports whether deliveries wait and only a few of many slots are free for them.
func (s *Slots) Batching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.free() - s.kept() - s.reading
	return s.waiting && s.total > fewSlots && n > 0 && n < (s.usable+s.extra+1)/2
}

// kept counts free slots that waiting recovery has a right to.
func (s *Slots) kept() int {
	if !s.recoveryWaiting || (s.usable == 1 && s.yielded) {
		return 0
	}
	return max(0, s.share()-s.Recovery)
}

// EndRead returns how many of the got deliveries have a slot, of those that beginRead allowed; recovery may have taken some
// while an empty stream was read.
func (s *Slots) EndRead(allowed, got int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := s.waiting
	s.waiting = got >= allowed
	s.reading -= allowed
	if got > 0 || (waited && !s.waiting) {
		s.changed.ring() // the other lane may read while this one claims; recovery may have all again
	}
	n := min(got, max(s.free(), 0))
	s.main += n
	s.claiming += n
	if n > 0 {
		s.yielded = false
	}
	return n
}

// EndLane follows endRead when what was read is claimed, and used of the slots that endRead granted run a task.
func (s *Slots) EndLane(granted, used int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes--
	s.main -= granted - used
	s.claiming -= granted
	s.changed.ring()
}

// Finishing notes that outcomes are committed now, of which some may have kept slots.
func (s *Slots) Finishing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > s.total {
		s.changed.ring()
	}
}

// TakeRecovery takes what recovery may have now, at most limit.
func (s *Slots) TakeRecovery(limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(s.forRecovery(), limit)
	s.Recovery += n
	return n
}

// Recoverable reports whether TakeRecovery would give a slot; changed is closed at the next change.
func (s *Slots) Recoverable() (yes bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forRecovery() > 0, s.changed.wait()
}

// forRecovery counts the slots that recovery may take now.
func (s *Slots) forRecovery() int {
	n := s.free()
	if s.waiting {
		n = min(n-s.reading, s.share()-s.Recovery)
		if s.usable == 1 && s.yielded {
			n = 0 // one slot in all: turn about
		}
	} else {
		n -= s.extra
	}
	return max(n, 0)
}

// TakeAlone takes a slot of recovery's for a task that runs alone, when none is in use.
func (s *Slots) TakeAlone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Recovery++
}

// SetRecoveryWaiting notes whether recovery has work without a slot.
func (s *Slots) SetRecoveryWaiting(recoveryWaiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recoveryWaiting != recoveryWaiting {
		s.recoveryWaiting = recoveryWaiting
		s.changed.ring()
	}
}

// Give returns n slots.
func (s *Slots) Give(recovery bool, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.used(recovery) -= n
	s.changed.ring()
}

// Ended returns the slot of a task that ran for so long.
func (s *Slots) Ended(recovery bool, ran time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ran <= shortRun {
		s.short++
	} else {
		s.long++
	}
	*s.used(recovery)--
	s.changed.ring()
}

// Ran notes that recovery used its slot for a task (turn about with one slot in all).
func (s *Slots) Ran(recovery bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yielded = recovery
}

// WriteOff counts a used slot as lost.
func (s *Slots) WriteOff(recovery bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.used(recovery)--
	s.lost++
}

// Restore frees a slot that was written off.
func (s *Slots) Restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost--
	s.changed.ring()
}

// used is the counter of one side.
func (s *Slots) used(recovery bool) *int {
	if recovery {
		return &s.Recovery
	}
	return &s.main
}

// Left returns how many slots are not lost, and of how many.
func (s *Slots) Left() (left, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total - s.lost, s.total
}

// Idle returns how many slots run nothing.
func (s *Slots) Idle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free()
}
