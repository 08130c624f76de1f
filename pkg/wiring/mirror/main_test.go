package mirror

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
)

// No server is needed: this is for its longest wait with what is on its way out.
func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}
