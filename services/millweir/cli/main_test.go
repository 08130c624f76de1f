package cli_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	if child.Is(os.Args) {
		os.Exit(child.Main())
	}
	time.Local = time.UTC // the golden files show times as people see them
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}
