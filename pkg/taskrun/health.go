package taskrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// health knows which of the parts around the runner answer, and logs their troubles at a bounded rate.
type health struct {
	log   *slog.Logger
	now   func() time.Time
	every time.Duration // the heartbeat interval: a longer silence of the database is an outage (design D6)
	half  time.Duration // half a lease

	mu       sync.Mutex
	store    trouble
	queue    trouble
	takeover time.Time // no takeover before it
	awake    time.Time // when the heartbeat loop last ran
	logged   map[string]time.Time
	started  bool
	stopping bool
	stalled  bool
}

// trouble is a row of failed calls.
type trouble struct {
	since time.Time // begin of the first failed call
	fails int
	err   error
}

func newHealth(c Config, log *slog.Logger, now func() time.Time) *health {
	return &health{
		log: log, now: now, every: c.heartbeat(), half: c.Policy.Lease / 2, awake: now(), logged: map[string]time.Time{},
	}
}

// runs notes that the heartbeat loop runs. It returns how long the whole process stood still before that (it was stopped, or
// its machine slept), and 0 when it did not; counted is the part that the process' own timers saw.
// After a standstill every takeover waits half a lease, as after an outage: other processes may have stood still with this
// one, and get the time to renew what they hold.
func (h *health) runs() (stood, counted time.Duration) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stands(now) {
		stood, counted = elapsed(now, h.awake), now.Sub(h.awake)
		h.takeover = now.Add(h.half)
	}
	h.awake = now
	return stood, counted
}

// stands reports whether the heartbeat loop has not run for half a lease: one that was renewed in time may have expired since.
func (h *health) stands(now time.Time) bool { return elapsed(now, h.awake) > h.half }

// elapsed is the time from then to now by the clock that went further: the monotonic one stands still while a machine sleeps.
func elapsed(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// storeCall notes how a call of the store ended. After an outage every takeover waits half a lease:
// holders that could not renew get the time to do it, so an outage counts no crash (design D6).
func (h *health) storeCall(began time.Time, err error) {
	now := h.now()
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

// queueCall notes how a call of the queue ended.
func (h *health) queueCall(began time.Time, err error) {
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

// mayTakeOver returns how long takeovers still have to wait.
func (h *health) mayTakeOver() (wait time.Duration) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stands(now) || (h.store.fails > 1 && now.Sub(h.store.since) > h.every) {
		return h.half
	}
	return max(h.takeover.Sub(now), 0)
}

// warn logs trouble of one sort at most once in logEvery.
func (h *health) warn(ctx context.Context, message string, err error, attrs ...slog.Attr) {
	now := h.now()
	h.mu.Lock()
	last, known := h.logged[message]
	due := !known || now.Sub(last) >= logEvery
	if due {
		h.logged[message] = now
	}
	h.mu.Unlock()
	if due {
		h.log.LogAttrs(ctx, slog.LevelWarn, message, append(attrs, slog.Any("error", err))...)
	}
}

// set notes a fact under the lock.
func (h *health) set(f func(h *health)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

// problems returns why the runner is not ready; nil when it is.
func (h *health) problems() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	if !h.started {
		errs = append(errs, errors.New("starting"))
	}
	if h.stopping {
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

// backoff is a growing pause of a loop.
type backoff struct{ next time.Duration }

// after returns the next pause.
func (b *backoff) after() time.Duration {
	d := max(b.next, retryFloor)
	b.next = min(d*2, retryMax)
	return d
}

// reset starts anew.
func (b *backoff) reset() { b.next = 0 }

// pause waits for d or the end of ctx; it reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
