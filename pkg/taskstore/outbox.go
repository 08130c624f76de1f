package taskstore

import (
	"context"

	"github.com/millweir/millweir/pkg/taskstate"
)

// deliver lets the outbox write what belongs to rows that were accepted.
func (b *submission) deliver(ctx context.Context, tx taskstate.Tx) (err error) {
	if b.store.outbox == nil {
		return nil
	}
	rows := make([]taskstate.Changed, len(b.out))
	for i, t := range b.out {
		rows[i].Task = t
	}
	b.events, err = b.store.outbox(ctx, tx, b.moment, rows)
	return err
}

// deliver lets the outbox write what belongs to changes that ask for it. It comes after the log: only then is it known
// what time the rows say.
func (b *batch) deliver(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) (err error) {
	if b.store.outbox == nil {
		return nil
	}
	var rows []taskstate.Changed
	for _, i := range b.changed {
		if c := b.decisions[i].Change; c.Deliver {
			after := b.tasks[i]
			apply(&after, c, b.writtenAt)
			rows = append(rows, taskstate.Changed{Task: after, Change: c})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if b.events, err = b.store.outbox(ctx, tx, m, rows); err != nil {
		return &alsoError{err}
	}
	return nil
}

// rang tells of a commit that wrote n messages.
func (s *Store) rang(n int) {
	if n > 0 && s.onEvents != nil {
		s.onEvents()
	}
}
