package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/telemetry"
)

// logEvery is the time in which one line of each sort of trouble is logged, with the number of those left out.
const logEvery = 30 * time.Second

// Health knows which of the parts around the runner answer, and logs their troubles at a bounded rate.
type Health struct {
	log   *telemetry.Repeated
	Now   func() time.Time
	every time.Duration // the heartbeat interval: a longer silence of the database is an outage (design D6)
	half  time.Duration // half a lease

	mu       sync.Mutex
	store    trouble
	queue    trouble
	takeover time.Time // no takeover before it
	Awake    time.Time // when the heartbeat loop last ran
	Started  bool
	Stopping bool
	idle     time.Time // since when deliveries wait, slots are free, and nothing came; zero: not so
	stalled  bool
}

// trouble is a row of failed calls.
type trouble struct {
	since time.Time // begin of the first failed call
	fails int
	err   error
}

func NewHealth(heartbeat, lease time.Duration, log *slog.Logger, now func() time.Time) *Health {
	return &Health{
		log: telemetry.NewRepeated(log, logEvery, now), Now: now, every: heartbeat, half: lease / 2, Awake: now(),
	}
}

// Runs notes that the heartbeat loop runs. It returns how long the whole process stood still before that (it was stopped, or
// its machine slept), and 0 when it did not; counted is the part that the process' own timers saw.
// After a standstill every takeover waits half a lease, as after an outage: other processes may have stood still with this
// one, and get the time to renew what they hold.
func (h *Health) Runs() (stood, counted time.Duration) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stands(now) {
		stood, counted = Elapsed(now, h.Awake), now.Sub(h.Awake)
		h.takeover = now.Add(h.half)
	}
	h.Awake = now
	return stood, counted
}

// stands reports whether the heartbeat loop has not run for half a lease: one that was renewed in time may have expired since.
func (h *Health) stands(now time.Time) bool { return Elapsed(now, h.Awake) > h.half }

// Elapsed is the time from then to now by the clock that went further: the monotonic one stands still while a machine sleeps.
func Elapsed(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// storeCall notes how a call of the store ended. After an outage every takeover waits half a lease:
// holders that could not renew get the time to do it, so an outage counts no crash (design D6).
func (h *Health) storeCall(began time.Time, err error) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.store.add(began, err)
		return
	}
	if h.store.fails > 1 && now.Sub(h.store.since) > h.every {
		h.takeover = now.Add(h.half)
	}
	h.store = trouble{}
}

// QueueCall notes how a call of the queue ended.
func (h *Health) QueueCall(began time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.queue.add(began, err)
		return
	}
	h.queue = trouble{}
}

// add notes one more failure.
func (t *trouble) add(began time.Time, err error) {
	if t.fails == 0 {
		t.since = began
	}
	t.fails++
	t.err = err
}

// MayTakeOver returns how long takeovers still have to wait.
func (h *Health) MayTakeOver() (wait time.Duration) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stands(now) || (h.store.fails > 1 && now.Sub(h.store.since) > h.every) {
		return h.half
	}
	return max(h.takeover.Sub(now), 0)
}

// Warn logs trouble of one sort at most once in logEvery.
func (h *Health) Warn(ctx context.Context, message string, err error, attrs ...slog.Attr) {
	h.log.Log(ctx, slog.LevelWarn, message, message, append(attrs, slog.Any("error", err))...)
}

// Set notes a fact under the lock.
func (h *Health) Set(f func(h *Health)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

// Delivered notes that deliveries came.
func (h *Health) Delivered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = time.Time{}
}

// Waits notes whether deliveries wait for free slots. A worker that is connected and yet is given nothing for so long, as
// clients of other systems are after a reconnect, is stalled.
func (h *Health) Waits(waiting bool, limit time.Duration) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !waiting:
		h.idle = time.Time{}
	case h.idle.IsZero():
		h.idle = now
	}
	h.stalled = !h.idle.IsZero() && now.Sub(h.idle) >= limit
}

// Problems returns why the runner is not ready; nil when it is.
func (h *Health) Problems() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	if !h.Started {
		errs = append(errs, errors.New("starting"))
	}
	if h.Stopping {
		errs = append(errs, ErrStopping)
	}
	if h.store.fails > 1 {
		errs = append(errs, fmt.Errorf("database: %w", h.store.err))
	}
	if h.queue.fails > 1 {
		errs = append(errs, fmt.Errorf("queue: %w", h.queue.err))
	}
	if h.stalled {
		errs = append(errs, errors.New("deliveries wait and slots are free, but nothing is taken"))
	}
	return errors.Join(errs...)
}

// ErrUnchecked is the state before the first look.
var ErrUnchecked = errors.New("not looked at yet")

// Fitness knows whether the process can run tasks at all.
type Fitness struct {
	mu      sync.Mutex
	Err     error // why it takes no work; nil: it does
	changed signal
}

// State returns what is closed at the next change, and why no work is taken; nil: it is.
func (f *Fitness) State() (changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed.wait(), f.Err
}

// Problem returns why no work is taken; nil: it is.
func (f *Fitness) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Err
}

// Set notes the state; first tells that the process could work until now.
func (f *Fitness) Set(err error) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = f.Err == nil && err != nil
	if (f.Err == nil) != (err == nil) {
		f.changed.ring()
	}
	f.Err = err
	return first
}

// Await waits until the process can work; it reports whether ctx goes on.
func (f *Fitness) Await(ctx context.Context) bool {
	return Until(ctx, func() (bool, <-chan struct{}) {
		changed, err := f.State()
		return err == nil, changed
	})
}
