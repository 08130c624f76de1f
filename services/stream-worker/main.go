// Command stream-worker takes deliveries from Redis and works on their tasks.
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
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	_ "github.com/millweir/millweir/pkg/ingest/extract/pdf/wasm" // reads PDFs
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/wiring/redis" // carries deliveries
	"github.com/millweir/millweir/pkg/wiring/worker"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Main(process.Spec{Name: "stream-worker", OperatorAddr: "127.0.0.1:9082"}, func(ctx context.Context, env *process.Env, s *worker.Settings) error {
		return worker.Run(ctx, env, s, worker.RoleWorker)
	})
}
