package taskstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Hold implements taskstate.Store. A COMMIT without an answer gives taskstate.ErrOutcomeUnknown:
// what f wrote has no name that the store could look for.
func (s *Store) Hold(ctx context.Context, taskID string, token taskstate.Token, f taskstate.TxFunc) error {
	work := func(ctx context.Context, tx *session) (bool, error) {
		var now taskstate.Stamp
		m := taskstate.Moment{}
		err := tx.QueryRowContext(ctx, s.queries.Get("Hold"), taskID, token.Fence, token.Timeline).Scan(&now, &m.Timeline)
		if errors.Is(err, sql.ErrNoRows) {
			return false, taskstate.ErrLost
		}
		if err != nil {
			return false, err
		}
		m.Now = now.Time
		return true, f(ctx, tx, m)
	}
	return s.transact(ctx, "hold task "+taskID, work, nil)
}

// InTx implements taskstate.Store; as to a COMMIT without an answer see Hold.
func (s *Store) InTx(ctx context.Context, f taskstate.TxFunc) error {
	work := func(ctx context.Context, tx *session) (bool, error) {
		m, err := s.moment(ctx, tx)
		if err != nil {
			return false, err
		}
		return true, f(ctx, tx, m)
	}
	return s.transact(ctx, "transaction", work, nil)
}
