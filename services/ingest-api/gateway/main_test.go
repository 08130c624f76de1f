package gateway

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error {
		return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher),
			// A client of a cluster that changed looks again a second later, and five seconds later closes old connections.
			goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
			goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
	})
}
