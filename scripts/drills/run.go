package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab"
)

// tidyLimit is what a drill beyond its limit gets to stop its servers.
const tidyLimit = 40 * time.Second

// drill is one experiment. Its run answers what it saw, in a few words, or what was wrong.
type drill struct {
	name  string
	what  string        // what is broken, for -list
	limit time.Duration // a drill that takes longer has failed
	run   func(ctx context.Context, d *stage) (string, error)
}

// stage is what a drill works with.
type stage struct {
	bench  *lab.Bench
	name   string
	random *rand.Rand
}

// drills in the order of their runs.
var drills = []drill{
	{"main-reproduction", "Chroma unreachable, two attempts, no backoff", 2 * time.Minute, reproduction},
	{"main-kill9-worker", "gateway, workers and reclaimer killed at random for 30 s under load", 4 * time.Minute, kill9Workers},
	{"main-kill9-postgres", "the same on Postgres", 4 * time.Minute, kill9Postgres},
	{"main-kill9-dev", "the all-in-one killed at random for 30 s under load", 4 * time.Minute, kill9Dev},
	{"main-poison", "a document that kills its worker beside 20 innocent ones", 3 * time.Minute, poison},
	{"main-zombie", "a worker paused beyond its leases and woken after the takeover", 3 * time.Minute, zombie},
	{"main-redis-loss", "Redis killed, flushed, its group destroyed, its stream deleted under load", 4 * time.Minute, redisLoss},
	{"main-db-restart", "MariaDB killed, then away for 10 s, under load", 4 * time.Minute, databaseRestart},
	{"main-sigterm", "workers, gateway and all-in-one stopped in the middle of work", 3 * time.Minute, sigterm},
}

// run is the program; it answers the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("drills", flag.ContinueOnError)
	flags.SetOutput(stderr)
	prefix := flags.String("name", "", "only drills whose names begin so")
	list := flags.Bool("list", false, "list the drills and what they break")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of the random moments; printed with a failure")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return process.ExitOK
		}
		return process.ExitUsage
	}
	chosen := matching(*prefix)
	if len(chosen) == 0 {
		_, _ = fmt.Fprintf(stderr, "drills: no drill begins with %q; -list shows them\n", *prefix)
		return process.ExitUsage
	}
	if *list {
		for _, d := range chosen {
			_, _ = fmt.Fprintf(stdout, "%-20s %s\n", d.name, d.what)
		}
		return process.ExitOK
	}
	bench, err := lab.Prepare(ctx, "drills")
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "drills:", err)
		return process.ExitFailed
	}
	code := process.ExitOK
	for _, d := range chosen {
		if ctx.Err() != nil {
			return process.ExitFailed
		}
		if !d.report(ctx, bench, *seed, stdout) {
			code = process.ExitFailed
		}
	}
	return code
}

// matching are the drills whose names begin with prefix.
func matching(prefix string) []drill {
	var out []drill
	for _, d := range drills {
		if strings.HasPrefix(d.name, prefix) {
			out = append(out, d)
		}
	}
	return out
}

// report runs one drill within its limit and prints its line.
func (d drill) report(ctx context.Context, bench *lab.Bench, seed uint64, stdout io.Writer) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit, fmt.Errorf("the drill took longer than %s", d.limit))
	defer cancel()
	started := time.Now()
	s := &stage{bench: bench, name: d.name, random: rand.New(rand.NewPCG(seed, 0x6472696c6c))} //nolint:gosec // moments of faults, no secret
	saw, err := d.bounded(ctx, s)
	took := time.Since(started).Seconds()
	if err != nil {
		_, _ = fmt.Fprintf(stdout, "FAIL %s (%.1f s, seed %d): %v\n  logs: %s\n", d.name, took, seed, err, filepath.Join(bench.Run, d.name))
		return false
	}
	_, _ = fmt.Fprintf(stdout, "PASS %s (%.1f s): %s\n", d.name, took, saw)
	return true
}

// bounded gives a drill that does not come back after its limit a while to tidy up, and then goes on without it.
func (d drill) bounded(ctx context.Context, s *stage) (string, error) {
	type outcome struct {
		saw string
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		saw, err := d.run(ctx, s)
		done <- outcome{saw, err}
	}()
	select {
	case o := <-done:
		return o.saw, o.err
	case <-ctx.Done():
	}
	late := time.NewTimer(tidyLimit)
	defer late.Stop()
	select {
	case o := <-done:
		return o.saw, o.err
	case <-late.C:
		return "", fmt.Errorf("%w, and it does not come back", context.Cause(ctx))
	}
}
