// Command mutants is make mutants (package scripts/lab/mutants).
package main

import (
	"context"
	"os"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab/mutants"
)

func main() {
	process.Command(func(ctx context.Context) int { return mutants.Run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}
