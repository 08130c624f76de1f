// Command outbox-relay sends the events of the outbox to Kafka.
package main

import (
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/outbox-relay/relay"
)

func main() {
	process.Main(process.Spec{Name: "outbox-relay", OperatorAddr: "127.0.0.1:9084"}, relay.Run)
}
