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
	Now    func() time.Time
}

// NewStore makes calls of store.
func NewStore(store taskstate.Database, health *Health, now func() time.Time) *Store {
	return &Store{Database: store, Health: health, Now: now}
}

// done notes a call's end for readiness and the outage rule; it returns err.
func (c *Store) done(began time.Time, err error) error {
	if err == nil || Unavailable(err) {
		c.Health.storeCall(began, err)
	}
	return err
}

// Sweep implements taskstate.Store.
func (c *Store) Sweep(ctx context.Context, s taskstate.Sweep) ([]taskstate.Outcome, error) {
	began := c.Now()
	outs, err := c.Database.Sweep(ctx, s)
	return outs, c.done(began, err)
}

// Apply implements taskstate.Store for parts that have rows of several tasks: when a hook's error ends the whole batch,
// it is tried row by row, so that one bad row fails alone (design D9).
func (c *Store) Apply(ctx context.Context, b taskstate.Batch) ([]taskstate.Outcome, error) {
	began := c.Now()
	outs, err := c.Database.Apply(ctx, b)
	if c.done(began, err) == nil || Unavailable(err) {
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

// Heartbeat implements taskstate.Store.
func (c *Store) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) ([]string, error) {
	began := c.Now()
	lost, err := c.Database.Heartbeat(ctx, lease, beats)
	return lost, c.done(began, err)
}

// Due implements taskstate.Store.
func (c *Store) Due(ctx context.Context, limit int) (int64, time.Duration, error) {
	began := c.Now()
	n, oldest, err := c.Database.Due(ctx, limit)
	return n, oldest, c.done(began, err)
}

// NextWake implements taskstate.Store.
func (c *Store) NextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (time.Duration, error) {
	began := c.Now()
	d, err := c.Database.NextWake(ctx, status, limit)
	return d, c.done(began, err)
}

// Moment implements taskstate.Store.
func (c *Store) Moment(ctx context.Context) (taskstate.DBClock, error) {
	began := c.Now()
	m, err := c.Database.Moment(ctx)
	return m, c.done(began, err)
}

// GetMany implements taskstate.Store.
func (c *Store) GetMany(ctx context.Context, s taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	began := c.Now()
	tasks, err := c.Database.GetMany(ctx, s, ids)
	return tasks, c.done(began, err)
}
