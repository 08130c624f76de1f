// Command peers measures Millweir and other task systems side by side, in one run, on the same servers and the same
// machine, and prints how they stand to each other beside what is asked of Millweir.
//
//	make bench-peers                               everything: .run/peers.json
//	make bench-peers NAMES=millweir,river REPS=1   those whose names begin so
//	peers -doc deploy/docs/performance.md          put the last run's tables into the page
//
// N is the number of tasks of a bulk (20000; slow systems get a quarter), REPS the repetitions (3). Every repetition
// measures every system once, and a ratio is the median of the ratios inside the repetitions, so that a machine whose
// speed changes during the run changes both sides. A system that cannot be installed or fails is said to have failed.
//
// The program is a module of its own and no part of the workspace (its commands run with GOWORK=off): the libraries of
// rivals must not choose the versions that Millweir is built with.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/peers/rival"
)

// serveVerb makes this program one of the systems: peers serve NAME.
const serveVerb = "serve"

// amqpVerb publishes into RabbitMQ by watermill-amqp, for `BENCH=mirror make bench`.
const amqpVerb = "publish-amqp"

func main() {
	process.Command(func(ctx context.Context) int {
		if len(os.Args) == 3 && os.Args[1] == serveVerb {
			return serve(ctx, os.Args[2])
		}
		if len(os.Args) > 1 && os.Args[1] == amqpVerb {
			if err := rival.PublishAMQP(ctx, os.Args[2:], os.Stdout); err != nil {
				_, _ = fmt.Fprintln(os.Stderr, "peers:", err)
				return process.ExitFailed
			}
			return process.ExitOK
		}
		return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	})
}

// serve is one system's process. All in Go get what our services set for themselves, so that no ratio comes of the collector.
func serve(ctx context.Context, name string) int {
	process.FewerCollections()
	cfg, err := rival.ConfigFromEnv()
	if err == nil {
		err = rival.Serve(ctx, name, cfg, os.Stdin, os.Stdout)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "peers:", err)
		return process.ExitFailed
	}
	return process.ExitOK
}
