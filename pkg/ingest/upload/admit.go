package upload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// admitFresh is how long a look is believed.
	admitFresh = time.Second
	// admitLimit bounds a look: a database that does not answer one read in this time is away.
	admitLimit = 5 * time.Second
)

// admission knows whether uploads can be taken in, without a look for each.
type admission struct {
	mu      sync.Mutex
	at      time.Time // of the last look
	err     error     // why not, by the last look; nil: they can
	doubt   bool      // the database did not take an upload since that look
	looking chan struct{}
}

// Admit returns nil when an upload can be taken in now. It is asked before the body is read: what cannot be accepted is not received.
// The database is asked at most once a second for all uploads together. While it is known to be away one of them asks it, so that
// the first after its return is taken, and the others are refused at once.
// Errors: taskstate.ErrUnavailable, ErrFolder, what keeps the upload folder from being read.
func (a *Uploads) Admit(ctx context.Context) error {
	d := &a.admission
	for {
		d.mu.Lock()
		now := a.d.Clock()
		fresh := d.err == nil && !d.doubt && !d.at.IsZero() && now.Sub(d.at) < admitFresh && !now.Before(d.at)
		if fresh || (d.looking != nil && d.err != nil) {
			defer d.mu.Unlock()
			return d.err
		}
		looking := d.looking
		if looking == nil {
			d.looking = make(chan struct{})
			write := d.err != nil || d.doubt
			d.mu.Unlock()
			return a.admitOnce(ctx, write)
		}
		d.mu.Unlock()
		select {
		case <-looking:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// admitOnce looks and lets everybody know. write: the database must also take a change, for it may be read-only.
func (a *Uploads) admitOnce(ctx context.Context, write bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), admitLimit)
	defer cancel()
	err := a.mount.CheckFolder(ctx)
	if err == nil && write {
		err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, a.q.Get("FileDelete"), "")
			return err
		})
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, taskstate.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
	}
	d := &a.admission
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.err, d.doubt = a.d.Clock(), err, false
	close(d.looking)
	d.looking = nil
	return err
}

// refused notes that the database did not take an upload: the next one looks before it is received.
func (a *Uploads) refused(err error) {
	if !errors.Is(err, taskstate.ErrUnavailable) && !errors.Is(err, taskstate.ErrOutcomeUnknown) {
		return
	}
	d := &a.admission
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doubt = true
}
