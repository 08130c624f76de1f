// Command reclaimer runs due retries, takes expired leases over and mends lost deliveries: the recovery loop with slots of its own,
// so that retries and takeovers never wait behind new work, and the sweepers of deliveries and documents. Off, one or many: all
// are right. It links no PDF engine: a PDF whose turn comes here is handed back, and a worker runs it.
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
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/wiring/kafka" // one of the two carries deliveries
	_ "github.com/millweir/millweir/pkg/wiring/redis"
	"github.com/millweir/millweir/pkg/wiring/worker"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Main(process.Spec{Name: "reclaimer", OperatorAddr: "127.0.0.1:9083"}, func(ctx context.Context, env *process.Env, s *worker.Settings) error {
		return worker.Run(ctx, env, s, worker.RoleReclaimer)
	})
}
