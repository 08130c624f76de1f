// Command kafka-consumer takes deliveries from Kafka and works on their tasks.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/kafka-consumer/consumer"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Main(process.Spec{Name: "kafka-consumer", OperatorAddr: "127.0.0.1:9085"}, consumer.Run)
}
