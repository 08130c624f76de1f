package taskrun

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	labserver.Main(m)
	// The server processes' own watcher lives as long as the process.
	if err := goleak.Find(goleak.IgnoreTopFunction("github.com/millweir/millweir/pkg/labserver.init.func1.1")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
