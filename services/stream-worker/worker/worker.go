// Package worker is the body of stream-worker.
//
// What a crash leaves, and who mends it:
//
//	died after …            left                                    mended by
//	read                    a pending delivery, a QUEUED row        reconciling copies it once the member's heartbeat is gone
//	claim                   RUNNING until the lease ends            a takeover by any recovery loop
//	embedding cache                  paid embeddings                         the next attempt starts after them
//	segment rows            rows of a version that nobody sees      the next attempt plans on, or the sweeper
//	vectors                 vectors that rows name                  the next attempt upserts them again, or the sweeper
//	finish                  the outcome; its delivery pending       reconciling acknowledges it
//	DLQ entry               DEAD, still owed                        a sweep writes a second entry and marks it
//	acknowledgement         DEAD, still owed                        the same
package worker

import (
	"context"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
)

// Run works until ctx ends; what runs then is ended or handed back.
func Run(ctx context.Context, env *process.Env, cfg *suite.Worker) error {
	return suite.RunWorker(ctx, env, cfg, suite.RoleWorker)
}
