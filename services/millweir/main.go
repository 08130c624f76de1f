// Command millweir submits documents, watches tasks, searches, migrates databases, and runs everything in one process (dev).
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/millweir/admin"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/dev"
	"github.com/millweir/millweir/services/millweir/submit"
)

func main() {
	if child.Is(os.Args) {
		process.Command(func(context.Context) int { return child.Main() })
	}
	process.Command(func(ctx context.Context) int {
		// Its flags and exit codes are those of a process, so it runs past the command line, which only lists it.
		if len(os.Args) > 1 && os.Args[1] == "dev" {
			return dev.Run(ctx, os.Args[2:], os.Stdout, os.Stderr)
		}
		return cli.Run(ctx, cli.Process(), os.Args[1:], cli.Commands, submit.Commands, admin.Commands, devCommand)
	})
}

// devCommand is dev in the list of verbs.
func devCommand(*cli.App) []*cobra.Command {
	return []*cobra.Command{{
		Use: "dev [--data DIR] [--addr HOST:PORT] [--queue redis|kafka]", Short: "run everything in one process",
		DisableFlagsInUseLine: true, Run: func(*cobra.Command, []string) {},
	}}
}
