// Command millweir-cli is millweir without dev: every verb of the command line, and nothing that serves.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/millweir/admin"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/submit"
)

func main() {
	process.Command(func(ctx context.Context) int {
		return cli.Run(ctx, cli.Process(), os.Args[1:], cli.Commands, submit.Commands, admin.Commands)
	})
}
