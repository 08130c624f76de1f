package taskrun

import "sync"

// slots counts who uses how many of a process's slots.
//
// New deliveries and recovery share them: while deliveries wait, recovery has at most half (rounded up),
// and as much as that is kept for it when it has work; otherwise it may have all (design D4).
type slots struct {
	mu              sync.Mutex
	total           int
	usable          int  // at most so many run: fewer than total after a fault of the process
	went            int  // tasks that succeeded since usable grew
	lost            int  // written off: their runs ignore that they were cancelled
	main            int  // run tasks that new deliveries brought
	recovery        int  // run tasks that recovery found
	reading         int  // asked for by the reads in flight
	lanes           int  // loops that read or claim now
	waiting         bool // the last read was full: more deliveries wait
	recoveryWaiting bool // recovery knows of work and had no slot for it
	yielded         bool // with one slot in all: the last one went to recovery
	changed         signal
}

// newSlots returns n free slots.
func newSlots(n int) *slots { return &slots{total: n, usable: n} }

// wait returns a channel that is closed at the next change.
func (s *slots) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed.wait()
}

// share is recovery's part while deliveries wait.
func (s *slots) share() int { return (s.usable + 1) / 2 }

// free counts slots that run nothing.
func (s *slots) free() int { return min(s.total-s.lost, s.usable) - s.main - s.recovery }

// shrink halves the number of tasks that run at once: so many were too much for the process.
func (s *slots) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usable, s.went = max(1, min(s.usable, s.main+s.recovery)/2), 0
}

// grow counts a task that succeeded: after as many as run at once one more may.
func (s *slots) grow() {
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

// usableNow returns how many tasks may run at once.
func (s *slots) usableNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable
}

// beginRead returns how many deliveries may be read; endRead and endLane must follow when it is not 0, else changed is closed at the
// next change. more tells that the last read was full.
func (s *slots) beginRead() (n int, more bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(s.free()-s.kept()-s.reading, maxSweep)
	if n <= 0 || (s.waiting && s.lanes > 0) { // of a backlog one lane takes more at a time than two
		return 0, s.waiting, s.changed.wait()
	}
	s.reading += n
	s.lanes++
	return n, s.waiting, nil
}

// fewSlots is a number of slots for which a claim of many is not worth a wait.
const fewSlots = 16

// batching reports whether deliveries wait and only a few of many slots are free for them.
func (s *slots) batching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.free() - s.kept() - s.reading
	return s.waiting && s.total > fewSlots && n > 0 && n < s.share()
}

// kept counts free slots that waiting recovery has a right to.
func (s *slots) kept() int {
	if !s.recoveryWaiting || (s.usable == 1 && s.yielded) {
		return 0
	}
	return max(0, s.share()-s.recovery)
}

// endRead returns how many of the got deliveries have a slot, of those that beginRead allowed; recovery may have taken some
// while an empty stream was read.
func (s *slots) endRead(allowed, got int) int {
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
	if n > 0 {
		s.yielded = false
	}
	return n
}

// endLane follows endRead when what was read is claimed, and used of the slots that endRead granted run a task.
func (s *slots) endLane(granted, used int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes--
	s.main -= granted - used
	s.changed.ring()
}

// takeRecovery takes what recovery may have now, at most limit.
func (s *slots) takeRecovery(limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(s.forRecovery(), limit)
	s.recovery += n
	return n
}

// recoverable returns what takeRecovery would give.
func (s *slots) recoverable() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forRecovery()
}

// forRecovery counts the slots that recovery may take now.
func (s *slots) forRecovery() int {
	n := s.free()
	if s.waiting {
		n = min(n-s.reading, s.share()-s.recovery)
		if s.usable == 1 && s.yielded {
			n = 0 // one slot in all: turn about
		}
	}
	return max(n, 0)
}

// takeAlone takes a slot of recovery's for a task that runs alone, when none is in use.
func (s *slots) takeAlone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recovery++
}

// setRecoveryWaiting notes whether recovery has work without a slot.
func (s *slots) setRecoveryWaiting(recoveryWaiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recoveryWaiting != recoveryWaiting {
		s.recoveryWaiting = recoveryWaiting
		s.changed.ring()
	}
}

// give returns n slots.
func (s *slots) give(recovery bool, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.used(recovery) -= n
	s.changed.ring()
}

// ran notes that recovery used its slot for a task (turn about with one slot in all).
func (s *slots) ran(recovery bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yielded = recovery
}

// writeOff counts a used slot as lost.
func (s *slots) writeOff(recovery bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.used(recovery)--
	s.lost++
}

// restore frees a slot that was written off.
func (s *slots) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost--
	s.changed.ring()
}

// used is the counter of one side.
func (s *slots) used(recovery bool) *int {
	if recovery {
		return &s.recovery
	}
	return &s.main
}

// left returns how many slots are not lost, and of how many.
func (s *slots) left() (left, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total - s.lost, s.total
}

// idle returns how many slots run nothing.
func (s *slots) idle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free()
}
