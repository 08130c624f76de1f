// Command millweir-cli is millweir without dev: every verb of the command line, and nothing that serves.
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/millweir/admin"
	"github.com/millweir/millweir/services/millweir/cli"
)

func main() {
	process.Command(func(ctx context.Context) int {
		std := cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: cli.IsTerminal(os.Stderr), Getenv: os.Getenv}
		return cli.Run(ctx, std, os.Args[1:], cli.Commands, admin.Commands)
	})
}
