// Command pdf-reader is the process that reads documents where PDF_ENGINE=native: the child of a worker, as every worker starts of itself
// otherwise, with PDFium as a library of the system (design D30). Nobody else starts it. Its arguments are extract-child and the path of
// libpdfium.so.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/pdf/native"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
	"github.com/millweir/millweir/pkg/process"
)

const (
	// enclosed is the last argument of the second start.
	enclosed = "enclosed"
	// heapGrowth is how much the heap may grow until it is collected, in percent.
	heapGrowth = 400
)

func main() { process.Command(func(context.Context) int { return run() }) }

func run() int {
	if len(os.Args) < 3 || os.Args[1] != frame.ChildArg {
		fmt.Fprintln(os.Stderr, "pdf-reader: a worker with PDF_ENGINE=native starts this program; it does nothing by itself")
		return 2
	}
	if len(os.Args) == 3 {
		// What the library needs is mapped once, so that the second start is allowed just that. If something fails here, the second
		// step finds it too, and tells the parent.
		if _, err := native.Load(os.Args[2]); err == nil {
			_ = sandbox.Enclose(append(os.Args[:3:3], enclosed))
		}
	}
	// Go's own heap is small here, and most of the memory is the library's: it is collected less often.
	debug.SetGCPercent(heapGrowth)
	native.Register(os.Args[2])
	return child.Main()
}
