// Package consumer is the body of kafka-consumer: what stream-worker does on Redis, it does on Kafka.
//
// What a crash leaves, and who mends it:
//
//	died after …            left                                    mended by
//	read                    an offset that is not committed         who gets the partition reads the record again
//	claim                   the same, RUNNING until the lease ends  a takeover by any recovery loop; the record answers busy
//	embedding cache                  paid embeddings                         the next attempt starts after them
//	segment rows            rows of a version that nobody sees      the next attempt plans on, or the sweeper
//	vectors                 vectors that rows name                  the next attempt upserts them again, or the sweeper
//	finish                  the outcome, and a DEAD task's event    the record comes again and answers skipped or not due
//	dead letter of a record two of them                             nothing: undecodable bytes may be put away twice
//	acknowledgement         an offset that is not committed yet     the record comes again and answers skipped
package consumer

import (
	"context"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
)

// Run works until ctx ends; what runs then is ended or handed back.
func Run(ctx context.Context, env *process.Env, cfg *suite.Worker) error {
	return suite.RunWorker(ctx, env, cfg, suite.RoleConsumer)
}
