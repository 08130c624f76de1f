package telegram

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}
