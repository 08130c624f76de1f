// Command stream-worker takes deliveries from the queue and works on their tasks.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/stream-worker/worker"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Main(process.Spec{Name: "stream-worker", OperatorAddr: "127.0.0.1:9082"}, worker.Run)
}
