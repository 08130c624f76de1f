package extract

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	_ "github.com/millweir/millweir/pkg/ingest/extract/pdf/wasm" // reads PDFs
	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	registerHostile()
	if child.Is(os.Args) {
		os.Exit(child.Main())
	}
	if len(os.Args) == 3 && os.Args[1] == frame.ChildArg {
		os.Exit(pretend(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == parentArg {
		os.Exit(orphanMaker())
	}
	labserver.Main(m, func() error {
		if readerFolder != "" {
			_ = os.RemoveAll(readerFolder)
		}
		return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher))
	})
}
