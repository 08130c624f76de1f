package extract

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	registerHostile()
	if IsChild(os.Args) {
		os.Exit(ChildMain())
	}
	if len(os.Args) == 2 && os.Args[1] == parentArg {
		os.Exit(orphanMaker())
	}
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}
