// Command stream-mirror keeps a copy of every unfinished task in RabbitMQ (design D19). What a crash leaves, and who mends it, is
// said in package mirror.
package main

import (
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/mirror"
)

func main() {
	process.Main(process.Spec{Name: "stream-mirror", OperatorAddr: "127.0.0.1:9086"}, mirror.Run)
}
