// Package reclaim is the body of reclaimer: the recovery loop with slots of its own, so that retries and takeovers
// never wait behind new work, and the sweepers of deliveries and documents. Off, one or many: all are right.
//
// What a crash leaves, and who mends it:
//
//	died after …               left                                 mended by
//	takeover or retry claim    RUNNING until the lease ends         a takeover by any recovery loop
//	promise of a lost delivery a QUEUED row promised, no entry      the next sweep, later each time
//	copy of a pending entry    a copy; the old one acknowledged     nothing: one script does both
//	DLQ entry                  DEAD, still owed                     the next sweep writes a second entry and marks it
//	mark of garbage vectors    ids that SQL names                   the next sweep deletes them
//	deletion of vectors        the same ids, marked                 the next sweep deletes them again, harmless
package reclaim

import (
	"context"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
)

// Run recovers and sweeps until ctx ends.
func Run(ctx context.Context, env *process.Env, cfg *suite.Worker) error {
	return suite.RunWorker(ctx, env, cfg, suite.RoleReclaimer)
}
