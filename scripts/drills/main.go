// Command drills breaks real servers and processes of the product and looks at what is left.
//
//	drills [-name PREFIX] [-list] [-load 1m] [-parallel N] [-seed N]
//
// One line for each drill, `PASS name …` or `FAIL name …`; the exit code is 1 when one failed. Logs of every process
// stay under .run/drills/NAME; after a failure the line is followed by what was found, the guilty task's log and the paths.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/process"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == memberArg { // a drill starts this program as a member that it kills
		process.Command(func(ctx context.Context) int { return runMember(ctx, os.Args[2:], os.Stderr) })
	}
	process.Command(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}
