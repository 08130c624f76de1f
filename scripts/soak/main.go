// Command soak breaks a whole installation at random for a long time and then judges all that it left.
//
//	soak [-for 30m] [-seed N] [-transitions N] [-quiet 4m] [-faults PREFIX,…]
//
// Two gateways, three workers and two reclaimers run on MariaDB, Redis, Chroma and a fake embedding service. Users upload,
// replace, delete, cancel, retry, search and watch all the time; meanwhile a random subset of faults is at work, another one
// every 10 to 20 s, and none a quarter of the time. In the end everything is healed, the work comes to rest, and the checker
// of pkg/fsck judges tables, log, streams, vectors, what was paid and what the users saw. Every rule must have judged something.
//
// The last line is PASS or FAIL; a failure names the seed, the faults, the first violated rule and that task's history.
// Logs and evidence stay under .run/soak.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/process"
)

func main() {
	process.Command(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}
