// Command bench measures the product's own binaries on real servers and prints each figure beside the one asked for.
//
//	bench [-name PREFIX,…] [-list] [-report] [-out FILE] [-cpuprofile FILE]        BENCH=prefix,… in the environment does as -name
//
// BENCH_ROWS=10000000 adds the largest table to "scale" (it takes long to fill), BENCH_MINUTES=n shortens "steady".
// The table goes to the screen and, with all details, as JSON to FILE (.run/bench.json). A figure that missed
// what was asked is marked, the last lines name all of them, and the exit code is then 1: -report makes it 0. It is 1 in any
// case when something could not be measured.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/process"
)

func main() {
	if child.Is(os.Args) { // the benchmark of the readers starts this program as their child
		process.Command(func(context.Context) int { return child.Main() })
	}
	if isStub(os.Args) {
		process.Command(func(ctx context.Context) int { return runStub(ctx, os.Args[2]) })
	}
	if isMQMember(os.Args) { // the benchmark of streammq starts this program as a member that it kills
		process.Command(func(ctx context.Context) int { return runMQMember(ctx, os.Args[2]) })
	}
	if isUploadPart(os.Args) { // the benchmark of uploads starts this program as its clients and rivals
		process.Command(func(context.Context) int { return runUploadPart(os.Args, os.Stdout, os.Stderr) })
	}
	process.FewerCollections() // as the services do, whose code runs here
	process.Command(func(ctx context.Context) int { return run(ctx, benches, os.Args[1:], os.Stdout, os.Stderr) })
}
