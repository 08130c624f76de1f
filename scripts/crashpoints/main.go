// Command crashpoints kills the product's real processes at every point that the source marks (pkg/crash), lets others
// mend what is left, and judges it.
//
//	crashpoints [-name PREFIX] [-kind kill|stop|error|sleep] [-seed N] [-lanes N] [-mutant NAME] [-list]
//
// One line for each point, `PASS point …` or `FAIL point …` with what was found and the guilty task's log; the exit code
// is 1 when one failed, was never reached, or did not end its process. Logs stay under .run/crashpoints/LANE.
//
//	kill   SIGKILL at the point
//	stop   SIGSTOP at the point, SIGCONT after two leases: its owner comes back as a zombie
//	error  the point returns an error; only where the source can return one (crash.Fault)
//	sleep  the point takes two leases
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/process"
)

func main() {
	process.Command(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}
