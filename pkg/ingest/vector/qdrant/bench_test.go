package qdrant_test

import (
	"testing"

	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

func BenchmarkUpsert(b *testing.B) {
	vectortest.BenchUpsert(b, newStore(b, labserver.Qdrant(b).URL(""), nil))
}
