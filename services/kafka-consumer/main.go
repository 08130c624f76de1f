// Command kafka-consumer takes deliveries from Kafka and works on their tasks: what stream-worker does on Redis, it does on Kafka.
// It links Redis too, for one thing: dead letters that rows owe since before a switch from Redis go to its dead letter stream
// (design D11).
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
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	_ "github.com/millweir/millweir/pkg/ingest/extract/pdf/wasm" // reads PDFs
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/wiring/kafka" // carries deliveries
	_ "github.com/millweir/millweir/pkg/wiring/redis" // takes dead letters that are owed to it
	"github.com/millweir/millweir/pkg/wiring/worker"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Main(process.Spec{Name: "kafka-consumer", OperatorAddr: "127.0.0.1:9085"}, func(ctx context.Context, env *process.Env, s *worker.Settings) error {
		return worker.Run(ctx, env, s, worker.RoleConsumer)
	})
}
