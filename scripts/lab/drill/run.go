// Package drill breaks real servers and processes of the product and looks at what is left.
//
//	lab drill [-name PREFIX,…] [-list] [-load 1m] [-parallel N] [-seed N]
//
// One line for each drill; after a failure what was found, the guilty task's log and the paths of the logs.
// Every rule that a drill is made for must have judged something, and over a whole run every rule.
package drill

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/fsck/rules"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/verb"
	"github.com/millweir/millweir/scripts/lab/world"
)

// tidyLimit is what a drill beyond its limit gets to stop its servers.
const tidyLimit = 40 * time.Second

// Run is the verb drill.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r := run{said: &stage.Notebook{}, to: &verb.Lines{To: stdout}}
	parallel := 1
	if code, ok := verb.Parse("drill", args, stderr, &r.Flags, func(f *flag.FlagSet) {
		f.DurationVar(&r.load, "load", time.Minute, "how long each drill keeps load and faults up")
		f.IntVar(&parallel, "parallel", 1, "drills at a time")
	}); !ok {
		return code
	}
	all := drills()
	chosen, err := verb.Choose(r.Names, all, func(d drill) string { return d.name })
	if err != nil {
		return verb.Fail(stderr, "drill", process.ExitUsage, err)
	}
	if r.List {
		return verb.List(stdout, chosen, func(d drill) (string, string) { return d.name, d.what })
	}
	if r.bench, err = world.Prepare(ctx, "drills"); err != nil {
		return verb.Fail(stderr, "drill", process.ExitFailed, err)
	}
	var group errgroup.Group
	group.SetLimit(max(1, parallel))
	var failed atomic.Bool
	for _, d := range chosen {
		group.Go(func() error {
			if ctx.Err() != nil || !r.one(ctx, d) {
				failed.Store(true)
			}
			return nil
		})
	}
	_ = group.Wait() // what failed is in the lines
	if err := summarize(r.said.Sum(), stdout); err != nil && len(chosen) == len(all) {
		_, _ = fmt.Fprintln(stdout, "FAIL over all drills:", err)
		return process.ExitFailed
	}
	if failed.Load() {
		return process.ExitFailed
	}
	return process.ExitOK
}

// run is one run of the program.
type run struct {
	verb.Flags
	load  time.Duration
	bench *world.Bench
	said  *stage.Notebook // what the checker said of all drills
	to    io.Writer
}

// one runs a drill within its limit and prints its line.
func (r run) one(ctx context.Context, d drill) bool {
	limit := d.limit + r.load
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the drill took longer than %s", limit))
	defer cancel()
	started := time.Now()
	s := &stage.Stage{
		Bench: r.bench, Name: d.name, Load: r.load, Transport: d.on, Said: &stage.Notebook{},
		Random: rand.New(rand.NewPCG(r.Seed, 0x6472696c6c)), //nolint:gosec // moments of faults, no secret
	}
	saw, err := d.bounded(ctx, s)
	sum := s.Said.Sum()
	if r.said.Add(sum); err == nil { // a drill that failed has said why
		if err = sum.RequireJudged(d.rules...); len(sum) == 0 {
			err = errors.New("the checker was not asked")
		}
	}
	return verb.Result{Name: d.name, Took: time.Since(started), Seed: r.Seed, Saw: saw, Err: err, Logs: filepath.Join(r.bench.Run, d.name)}.Print(r.to)
}

// bounded gives a drill that does not come back after its limit a while to tidy up, and then goes on without it.
func (d drill) bounded(ctx context.Context, s *stage.Stage) (saw string, err error) {
	done := make(chan struct{})
	var words string
	var failed error
	go func() {
		defer close(done)
		words, failed = d.run(ctx, s)
	}()
	select {
	case <-done:
		return words, failed
	case <-ctx.Done():
	}
	select {
	case <-done:
		return words, failed
	case <-time.After(tidyLimit):
		return "", fmt.Errorf("%w, and it does not come back", context.Cause(ctx))
	}
}

// summarize prints how many events each rule judged over all drills; every applicable one but for elsewhere must have judged something.
func summarize(sum history.Report, out io.Writer) error {
	var words []string
	for _, id := range append(rules.Applicable(), stage.Partitions.Rules...) {
		words = append(words, fmt.Sprintf("%s %d", id, sum.Rule(id).Judged))
	}
	_, _ = fmt.Fprintf(out, "RULES judged, all drills together: %s\n", strings.Join(words, " · "))
	return sum.RequireJudged(slices.DeleteFunc(rules.Applicable(), func(id string) bool { return slices.Contains(elsewhere, id) })...)
}
