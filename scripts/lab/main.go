// Command lab runs the product's own binaries against real servers, breaks them, and looks at what is left.
//
//	lab drill    break servers and processes in one way each; one line for each drill
//	lab soak     random faults on a whole installation for a long time, then every rule is judged
//	lab crash    end processes at every point that the source marks (pkg/crash)
//	lab bench    measure, and print each figure beside the one asked for
//	lab mutants  run the checks against bugs that were seeded on purpose
//
// `lab VERB -h` shows a verb's flags. Every verb knows -name (prefixes, comma separated), -list and -seed, prints
// `PASS name …` or `FAIL name …` (bench: a row for each figure), and exits with 1 when something failed. Logs and evidence
// stay in a folder below .run that a failure names.
//
// A world (package world) is one set of servers, proxies, a fake embedding service and the processes that were started in it;
// it has ports and folders of its own, so several can live side by side. Package judge waits for rest and asks pkg/fsck,
// which owns all rules.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	_ "github.com/millweir/millweir/pkg/ingest/extract/pdf/wasm" // reads PDFs
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/scripts/lab/bench"
	"github.com/millweir/millweir/scripts/lab/bench/document"
	"github.com/millweir/millweir/scripts/lab/bench/installation"
	"github.com/millweir/millweir/scripts/lab/bench/mq"
	"github.com/millweir/millweir/scripts/lab/crash"
	"github.com/millweir/millweir/scripts/lab/drill"
	"github.com/millweir/millweir/scripts/lab/drill/fullload"
	"github.com/millweir/millweir/scripts/lab/mutants"
	"github.com/millweir/millweir/scripts/lab/soak"
	"github.com/millweir/millweir/scripts/lab/verb"
)

// verbs are what the laboratory does.
var verbs = map[string]verb.Run{"drill": drill.Run, "soak": soak.Run, "crash": crash.Run, "bench": bench.Run, "mutants": mutants.Run}

func main() {
	args := os.Args[1:]
	switch {
	case child.Is(os.Args): // the benchmark of the readers starts this program as their child
		process.Command(func(context.Context) int { return child.Main() })
	case document.IsStub(os.Args):
		process.Command(func(ctx context.Context) int { return document.RunStub(ctx, os.Args[2]) })
	case mq.IsMember(os.Args): // this one and the next are killed
		process.Command(func(ctx context.Context) int { return mq.RunMember(ctx, os.Args[2]) })
	case len(args) > 0 && args[0] == fullload.MemberArg:
		process.Command(func(ctx context.Context) int { return fullload.RunMember(ctx, args[1:], os.Stderr) })
	case installation.IsUploadPart(os.Args): // the benchmark's clients and rivals
		process.Command(func(context.Context) int { return installation.RunUploadPart(os.Args, os.Stdout, os.Stderr) })
	case len(args) == 0 || verbs[args[0]] == nil:
		process.Command(func(context.Context) int {
			_, _ = fmt.Fprintln(os.Stderr, "lab: want drill, soak, crash, bench or mutants")
			return process.ExitUsage
		})
	case args[0] == "bench":
		process.FewerCollections() // as the services do, whose code runs here
		process.LimitMemory()
	}
	process.Command(func(ctx context.Context) int { return verbs[args[0]](ctx, args[1:], os.Stdout, os.Stderr) })
}
