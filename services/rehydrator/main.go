// Command rehydrator takes tasks back from their copies in RabbitMQ (design D19).
//
// What a crash leaves, and who mends it:
//
//	died after …         left                                             mended by
//	a copy taken         a copy that goes back to the head                the next round; the delivery is counted
//	a promise renewed    a QUEUED row promised, no entry                  the sweep for lost deliveries
//	rows made again      a task that runs; its copy is still there        the next round finds the row
//	the republish        two copies of one task                           both go when the task ends
//	a claim              RUNNING until the lease ends                     a takeover by any recovery loop
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	_ "github.com/millweir/millweir/pkg/ingest/extract/pdf/wasm" // reads PDFs
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/rehydrator/rehydrator"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	var wish rehydrator.Wish
	process.Main(process.Spec{Name: "rehydrator", OperatorAddr: "127.0.0.1:9087", Flags: wish.Flags, Help: rehydrator.Help}, wish.Run)
}
