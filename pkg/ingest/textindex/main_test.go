package textindex_test

import (
	"testing"

	"github.com/millweir/millweir/pkg/ingest/ingesttest"
)

func TestMain(m *testing.M) { ingesttest.Main(m) }
