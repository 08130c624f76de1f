package sweep

import (
	"context"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

const SecondPass = secondPass

func (a *Deleter) Tombstone(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, c ingest.Caller, documents []string) error {
	return a.tombstone(ctx, tx, m, c.Scope.Actor(), c, documents)
}
