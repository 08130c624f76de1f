package taskstore

import (
	"context"
	"fmt"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// RenewEpoch starts a new history after a restore or an asynchronous failover (design D2): fences may repeat then,
// so that a holder from the lost history must no longer be believed. It sets a new random timeline and ends every lease;
// tasks that were running are taken over, which counts a crash for each. Ordinary upgrades never call it.
// It returns the new epoch and how many leases it ended.
func (s *Store) RenewEpoch(ctx context.Context) (epoch, leases int64, err error) {
	epoch, err = sqldb.NewEpoch()
	if err != nil {
		return 0, 0, err
	}
	err = s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		if _, err := tx.ExecContext(ctx, s.queries.Get("TimelineRenew"), epoch); err != nil {
			return fmt.Errorf("renew timeline: %w", err)
		}
		done, err := tx.ExecContext(ctx, s.queries.Get("LeasesExpire"))
		if err != nil {
			return fmt.Errorf("end leases: %w", err)
		}
		leases, err = done.RowsAffected()
		return err
	})
	return epoch, leases, err
}
