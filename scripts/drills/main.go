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
	process.Command(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}
