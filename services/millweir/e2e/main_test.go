package e2e

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/relay"
	"github.com/millweir/millweir/pkg/wiring/worker"
	"github.com/millweir/millweir/services/ingest-api/ingestapi"
	"github.com/millweir/millweir/services/millweir/admin"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/dev"
	"github.com/millweir/millweir/services/millweir/submit"
	"github.com/millweir/millweir/services/telegram-gateway/telegram"
)

// roleVariable tells this binary which program it is.
const roleVariable = "E2E_PROGRAM"

func TestMain(m *testing.M) {
	if child.Is(os.Args) {
		os.Exit(child.Main())
	}
	switch os.Getenv(roleVariable) {
	case "dev":
		process.Command(func(ctx context.Context) int { return dev.Run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
	case "ingest-api":
		process.Main(process.Spec{Name: "ingest-api", OperatorAddr: "127.0.0.1:0"}, ingestapi.Run)
	case "stream-worker":
		process.Main(process.Spec{Name: "stream-worker", OperatorAddr: "127.0.0.1:0"}, as(worker.RoleWorker))
	case "kafka-consumer":
		process.Main(process.Spec{Name: "kafka-consumer", OperatorAddr: "127.0.0.1:0"}, as(worker.RoleConsumer))
	case "outbox-relay":
		process.Main(process.Spec{Name: "outbox-relay", OperatorAddr: "127.0.0.1:0"}, relay.Run)
	case "reclaimer":
		process.Main(process.Spec{Name: "reclaimer", OperatorAddr: "127.0.0.1:0"}, as(worker.RoleReclaimer))
	case "telegram-gateway":
		process.Main(process.Spec{Name: "telegram-gateway", OperatorAddr: "127.0.0.1:0"}, telegram.Run)
	case "millweir":
		process.Command(func(ctx context.Context) int {
			std := cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
			return cli.Run(ctx, std, os.Args[1:], cli.Commands, submit.Commands, admin.Commands)
		})
	}
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// as is the body of a worker's role.
func as(role worker.Role) func(context.Context, *process.Env, *worker.Settings) error {
	return func(ctx context.Context, env *process.Env, s *worker.Settings) error {
		return worker.Run(ctx, env, s, role)
	}
}
