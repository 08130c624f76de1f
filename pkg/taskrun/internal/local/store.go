package local

import (
	"context"
	"errors"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Unavailable reports whether err says that the database does not answer.
func Unavailable(err error) bool {
	return errors.Is(err, taskstate.ErrUnavailable) || errors.Is(err, taskstate.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Store are the runner's calls of the store, and what is noted of how they went.
type Store struct {
	taskstate.Database
	Health *Health
}

// note notes a call's end for readiness and the outage rule.
func (c *Store) note(began time.Time, err *error) {
	if *err == nil || Unavailable(*err) {
		c.Health.storeCall(began, *err)
	}
}

// Sweep implements taskstate.Store.
func (c *Store) Sweep(ctx context.Context, s taskstate.Sweep) (_ []taskstate.Outcome, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Sweep(ctx, s)
}

// Apply implements taskstate.Store for parts that have rows of several tasks: when a hook's error ends the whole batch,
// it is tried row by row, so that one bad row fails alone (design D9).
func (c *Store) Apply(ctx context.Context, b taskstate.Batch) ([]taskstate.Outcome, error) {
	began := c.Health.Now()
	outs, err := c.Database.Apply(ctx, b)
	c.note(began, &err)
	if err == nil || Unavailable(err) {
		return outs, err
	}
	if len(b.IDs) == 1 {
		return []taskstate.Outcome{{Decision: taskstate.Decision{TaskID: b.IDs[0]}, Err: err}}, nil
	}
	outs = outs[:0]
	for _, id := range b.IDs {
		one := b
		one.IDs = []string{id}
		o, err := c.Apply(ctx, one)
		if err != nil {
			o = []taskstate.Outcome{{Decision: taskstate.Decision{TaskID: id}, Err: err}}
		}
		outs = append(outs, o...)
	}
	return outs, nil
}

// Renew implements taskstate.Store.
func (c *Store) Renew(ctx context.Context, process string, lease time.Duration, slots int) (err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Renew(ctx, process, lease, slots)
}

// Drains implements taskstate.Store.
func (c *Store) Drains(ctx context.Context, process string) (_ bool, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Drains(ctx, process)
}

// Drained implements taskstate.Store.
func (c *Store) Drained(ctx context.Context, process string) (err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Drained(ctx, process)
}

// Held implements taskstate.Store.
func (c *Store) Held(ctx context.Context, process string, within time.Duration) (_ []taskstate.HeldTask, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Held(ctx, process, within)
}

// Heartbeat implements taskstate.Store.
func (c *Store) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) (lost []string, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Heartbeat(ctx, lease, beats)
}

// Due implements taskstate.Reader.
func (c *Store) Due(ctx context.Context, limit int) (_ int64, oldest time.Duration, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Due(ctx, limit)
}

// NextWake implements taskstate.Reader.
func (c *Store) NextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (_ time.Duration, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.NextWake(ctx, status, limit)
}

// Moment implements taskstate.Store.
func (c *Store) Moment(ctx context.Context) (_ taskstate.DBClock, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.Moment(ctx)
}

// GetMany implements taskstate.Store.
func (c *Store) GetMany(ctx context.Context, s taskstate.Scope, ids []string) (_ []taskstate.Task, err error) {
	defer c.note(c.Health.Now(), &err)
	return c.Database.GetMany(ctx, s, ids)
}
