// Command millweir submits documents, watches tasks, searches, migrates databases, and runs everything in one process (dev).
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/millweir/admin"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/dev"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Command(func(ctx context.Context) int {
		if len(os.Args) > 1 && os.Args[1] == "dev" {
			return dev.Run(ctx, os.Args[2:], os.Stdout, os.Stderr)
		}
		std := cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: cli.IsTerminal(os.Stderr), Getenv: os.Getenv}
		return cli.Run(ctx, std, os.Args[1:], append(cli.Commands(), admin.Commands()...))
	})
}
