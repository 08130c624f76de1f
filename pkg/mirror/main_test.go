package mirror_test

import (
	"testing"

	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
