package local

import (
	"context"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Reservation is a task on its last chance that this process will run alone (design D6).
type Reservation struct {
	Outcome    taskstate.Outcome // Before as found, After with lease_owner and lease
	Epoch      int64
	Deliveries []ingestq.Delivery // the one that brought it; empty: recovery found it
	Renewed    time.Time
	lost       bool
	Running    bool // set by the isolated loop, under isolated.mu
}

// Beat is the heartbeat of a reservation: status and fence stay, the owner is this process's. That of a RUNNING task lives with the
// lease of the process.
func (res *Reservation) Beat() taskstate.Beat {
	t := res.Outcome.After
	return taskstate.Beat{
		TaskID: t.ID, Status: t.Status, Owner: t.LeaseOwner, Renew: t.Status != taskstate.StatusRunning,
		Token: taskstate.Token{Epoch: res.Epoch, Fence: t.Fence},
	}
}

// Isolation keeps the one reservation of a process.
type Isolation struct {
	Gate sync.RWMutex // claims of many claim it for reading, the claim alone for writing

	mu      sync.Mutex
	begun   bool // some claim may reserve now: no other may
	Res     *Reservation
	changed signal
}

// Begin asks for the right to reserve in one claim; reserve or giveUp must follow when it is given.
func (s *Isolation) Begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		return false
	}
	s.begun = true
	return true
}

// GiveUp returns the right: nothing was reserved, or the reservation is over.
func (s *Isolation) GiveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.Res = false, nil
	s.changed.ring()
}

// Reserve notes the reservation that was written.
func (s *Isolation) Reserve(res *Reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Res = res
	s.changed.ring()
}

// Active reports whether the process takes nothing new because of a reservation.
func (s *Isolation) Active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Res != nil
}

// Holds reports whether this is the owner of the reservation.
func (s *Isolation) Holds(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Res != nil && s.Res.Outcome.After.LeaseOwner == owner
}

// State returns the reservation, whether it was lost, and what is closed at the next change.
func (s *Isolation) State() (res *Reservation, lost bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Res, s.Res != nil && s.Res.lost, s.changed.wait()
}

// AwaitNone waits until there is no reservation; it reports whether ctx goes on.
func (s *Isolation) AwaitNone(ctx context.Context) bool {
	return Until(ctx, func() (bool, <-chan struct{}) {
		res, _, changed := s.State()
		return res == nil, changed
	})
}

// Await waits for a reservation; nil at the end of ctx.
func (s *Isolation) Await(ctx context.Context) (res *Reservation) {
	Until(ctx, func() (_ bool, changed <-chan struct{}) {
		res, _, changed = s.State()
		return res != nil, changed
	})
	return res
}

// Beat returns the reservation when its lease needs to be renewed.
func (s *Isolation) Beat(now time.Time, lease time.Duration) *Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Res == nil || s.Res.Running || s.Res.lost || Elapsed(now, s.Res.Renewed) < lease/3 {
		return nil
	}
	return s.Res
}

// Beaten notes how a reservation's heartbeat ended.
func (s *Isolation) Beaten(res *Reservation, now time.Time, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost {
		res.lost = true
		s.changed.ring()
		return
	}
	res.Renewed = now
}

// Run notes that the reserved task is claimed: it is a task like others from here on.
func (s *Isolation) Run(res *Reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res.Running = true
}

// Take returns the reservation for its release at a stop; nil when there is none, or its task runs.
func (s *Isolation) Take() *Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Res == nil || s.Res.Running {
		return nil
	}
	return s.Res
}
