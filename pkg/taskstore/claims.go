package taskstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// WithClaims implements taskstate.Store. A COMMIT without an answer gives taskstate.ErrOutcomeUnknown:
// what f wrote has no name that the store could look for.
func (s *Store) WithClaims(ctx context.Context, claims []taskstate.ClaimedTask, f taskstate.ClaimsFunc) error {
	if len(claims) == 0 {
		return nil
	}
	what := fmt.Sprintf("hold %d tasks", len(claims))
	if len(claims) == 1 {
		what = "hold task " + claims[0].TaskID
	}
	work := func(ctx context.Context, tx taskstate.Tx) (bool, error) {
		m, held, err := s.hold(ctx, tx, claims)
		if err != nil {
			return false, err
		}
		return true, f(ctx, tx, m, held)
	}
	return s.Run(ctx, sqldb.Call{Name: "hold", Batch: len(claims), What: what, Work: work})
}

// hold locks the tasks of claims and tells which of them hold. taskstate.ErrLost when none does.
func (s *Store) hold(ctx context.Context, tx taskstate.Tx, claims []taskstate.ClaimedTask) (m taskstate.DBClock, held []bool, err error) {
	params := make([]any, 0, 2*len(claims))
	place := make(map[string]int, len(claims))
	for i, c := range claims {
		params = append(params, sqldb.RawID(s.Dialect(), c.TaskID), c.Token.Fence)
		place[c.TaskID] = i
	}
	held = make([]bool, len(claims))
	some := false
	err = sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
		var id string
		var now taskstate.DBTime
		err := rows.Scan(&id, &now, &m.Epoch)
		i, asked := place[id]
		if m.Now = now.Time; asked && claims[i].Token.Epoch == m.Epoch {
			held[i], some = true, true
		}
		return err
	}, s.queries.Any("Hold", len(claims)), params...)
	if err != nil {
		return m, nil, err
	}
	if !some {
		return m, nil, taskstate.ErrLost
	}
	return m, held, nil
}
