package dev

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/mirror"
	"github.com/millweir/millweir/services/telegram-gateway/telegram"
)

// update rewrites .env.example: go test ./services/millweir/dev -run EnvExample -update
var update = flag.Bool("update", false, "rewrite .env.example")

const envExample = "../../../.env.example"

const envHeader = `# Settings of Millweir: every one with its default. Copy this file to .env (make run reads it) and take the # away
# from what you change. The real environment wins over the file. "<service> --help-env" lists what one service reads.
# Secrets and addresses with a login can also come from a file: NAME_FILE=/path.
# Made by a test out of the services' Config structs; do not edit it by hand.
`

func TestEnvExampleIsCurrent(t *testing.T) {
	t.Parallel()
	var all Config
	shared := all.Worker.Shared
	got := bytes.NewBufferString(envHeader)
	err := process.WriteEnvExample(got,
		process.Section{Title: "every service", Config: process.CommonSettings()},
		process.Section{Title: "database", Config: shared.Store},
		process.Section{Title: "queue", Config: shared.Queue},
		process.Section{Title: "Kafka", Config: shared.Kafka},
		process.Section{Title: "outbox-relay", Config: all.Publishing},
		process.Section{Title: "tasks: attempts, leases, promises", Config: shared.Tasks},
		process.Section{Title: "files", Config: shared.Uploads},
		process.Section{Title: "vectors", Config: shared.Vectors},
		process.Section{Title: "embeddings", Config: shared.Embedding},
		process.Section{Title: "ingest-api", Config: all.HTTP},
		process.Section{Title: "search", Config: all.Search},
		process.Section{Title: "tokens", Config: all.Tokens},
		process.Section{Title: "log-in to the console", Config: all.OIDC},
		process.Section{Title: "RabbitMQ: stream-mirror and rehydrator", Config: mirror.Rabbit{}},
		process.Section{Title: "RabbitMQ's own figures: stream-mirror", Config: mirror.Exporters{}},
		process.Section{Title: "the audit stream in RabbitMQ: stream-mirror", Config: mirror.Audit{}},
		process.Section{Title: "telegram-gateway", Config: telegram.Bot{}},
		process.Section{Title: "stream-worker, kafka-consumer, reclaimer and rehydrator", Config: all.Worker.Work},
		process.Section{Title: "reading documents", Config: all.Worker.Content},
		process.Section{Title: "workflows", Config: all.Worker.Shared.Workflows},
		process.Section{Title: "all that is left", Config: all}, // nothing, unless a part was added and not named here
	)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(got.Bytes(), []byte("all that is left")) {
		t.Errorf("a part has settings that no section here names:\n%s", got)
	}
	if *update {
		if err := os.WriteFile(envExample, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(envExample)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf(".env.example is not current: go test ./services/millweir/dev -run EnvExample -update")
	}
}
