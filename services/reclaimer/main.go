// Command reclaimer runs due retries, takes expired leases over and mends lost deliveries.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/reclaimer/reclaim"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Main(process.Spec{Name: "reclaimer", OperatorAddr: "127.0.0.1:9083"}, reclaim.Run)
}
