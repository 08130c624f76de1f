// Command ingest-api is the HTTP gateway: uploads, tasks, events, search.
package main

import (
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/ingest-api/ingestapi"
)

func main() {
	process.Main(process.Spec{Name: "ingest-api", OperatorAddr: "127.0.0.1:9081"}, ingestapi.Run)
}
