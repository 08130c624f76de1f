package rehydrator

import (
	"context"
	"os"
	"testing"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
)

func TestMain(m *testing.M) {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	labserver.Main(m, labserver.NoLeaks)
}
