// Command services starts and stops the real servers that Millweir runs on, on 127.0.0.1 and without containers:
// what `make services-up`, `make services-down`, `make deps` and `make test-mysql` call.
//
//	services up|down|status|env|deps|unstable [-dir .run] [-wipe]
//
// SERVICES="redis mariadb" restricts it to some; MILLWEIR_REDIS_PORT=… and the like move a port.
// Everything is idempotent: what is installed, made or running already is left as it is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/process"
)

var errUsage = errors.New("usage: services up|down|status|env|deps|unstable [-dir .run] [-wipe]")

func main() {
	process.Command(func(ctx context.Context) int {
		err := run(ctx, os.Args[1:], os.Stdout)
		switch {
		case err == nil:
			return process.ExitOK
		case errors.Is(err, errUsage):
			_, _ = fmt.Fprintln(os.Stderr, err)
			return process.ExitUsage
		default:
			_, _ = fmt.Fprintln(os.Stderr, "services:", err)
			return process.ExitFailed
		}
	})
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("services", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("dir", ".run", "")
	wipe := flags.Bool("wipe", false, "")
	if err := flags.Parse(args[1:]); err != nil || flags.NArg() > 0 {
		return errUsage
	}
	f, err := newFleet(*dir, os.Getenv("SERVICES"), out)
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return f.up(ctx)
	case "down":
		return f.down(ctx, *wipe)
	case "status":
		return f.status(ctx)
	case "env":
		return f.writeEnv(out)
	case "deps":
		return f.deps(ctx)
	case "unstable":
		return f.installUnstable(ctx, os.Getenv(installed.UnstableVariable))
	default:
		return errUsage
	}
}
