package taskstore

import (
	"context"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Transact runs f in a transaction of its own, with the same retries as InTx and without a statement for the clock: for work
// whose statements are counted. settled finds out, after a COMMIT without an answer, whether it was done: in a transaction of
// its own that is rolled back, and waiting for the end of the one before by locking its rows. If it was not, f runs again.
// settled nil: such a COMMIT gives taskstate.ErrOutcomeUnknown.
func (s *Store) Transact(ctx context.Context, f taskstate.ReadFunc, resolved func(ctx context.Context, tx taskstate.Tx) (done bool, err error)) error {
	work := func(ctx context.Context, tx *session) (bool, error) { return true, f(ctx, tx) }
	var resolve resolveFunc
	if resolved != nil {
		resolve = func(ctx context.Context, tx *session) (bool, error) { return resolved(ctx, tx) }
	}
	return s.transact(ctx, operation{name: "transaction"}, "transaction", work, resolve)
}
