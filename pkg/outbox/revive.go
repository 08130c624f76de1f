package outbox

import (
	"context"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// pageRows is how many events one transaction revives, requeues or removes.
const pageRows = 500

// Revivable reports whether an event is DEAD for want of a broker.
func (s *Store) Revivable(ctx context.Context) (bool, error) {
	wait, err := s.NextWake(ctx, StatusDead, 1)
	return err == nil && wait == 0, err
}

// Revive makes at most limit events NEW again that are DEAD for want of a broker, in the order of their deaths, and returns
// how many. Several relays may do it at once: each gets others.
func (s *Store) Revive(ctx context.Context, limit int) (int, error) {
	n := 0
	err := s.db.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		n = 0
		seqs, err := sqldb.Collect(ctx, tx, sqldb.Column[int64], s.q.Get("Revivable"), limit)
		if err != nil || len(seqs) == 0 {
			return err
		}
		n, err = s.exec(ctx, tx, "Revive", lists{seqs: seqs})
		return err
	}, again)
	return n, wrap("revive", err)
}

// again settles work that may be done twice: it is run again.
func again(context.Context, taskstate.Tx) (bool, error) { return false, nil }

// exec runs a statement over lists and returns how many rows it matched.
func (s *Store) exec(ctx context.Context, tx taskstate.Tx, name string, l lists, args ...any) (int, error) {
	return exec(ctx, tx, s.bind(name, l, args...))
}

// exec runs a statement and returns how many rows it matched.
func exec(ctx context.Context, tx taskstate.Tx, query sqldb.Part) (int, error) {
	res, err := tx.ExecContext(ctx, query.Text, query.Args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}
