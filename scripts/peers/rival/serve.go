package rival

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/pause"
)

// Phase is a line that the measuring program sends.
type Phase string

// The phases, in their order; a raw cycle has no latency, and it alone has the last one.
const (
	PhasePrepare Phase = "prepare"
	PhaseSubmit  Phase = "submit"
	PhaseDrain   Phase = "drain"
	PhaseLatency Phase = "latency"
	PhaseCycle   Phase = "cycle"
)

// Reply is the line that answers a phase, as JSON.
type Reply struct {
	Tasks   int     `json:"tasks"`             // what Seconds belongs to
	Seconds float64 `json:"seconds,omitempty"` // of submit, drain and cycle
	// Latencies in milliseconds: from the moment a task was to be sent, and from its commit, to the start of its handler.
	SentP50   float64 `json:"sentP50,omitempty"`
	SentP99   float64 `json:"sentP99,omitempty"`
	SentMax   float64 `json:"sentMax,omitempty"`
	CommitP50 float64 `json:"commitP50,omitempty"`
	CommitP99 float64 `json:"commitP99,omitempty"`
	Note      string  `json:"note,omitempty"`
	Error     string  `json:"error,omitempty"`
}

const (
	drainLimit = 3 * time.Minute // of a drain; every system is told fewer tasks than that
	pollEvery  = 2 * time.Millisecond
)

// Serve returns phases from in on out until in ends; it is the whole of a system's process.
func Serve(ctx context.Context, name string, cfg Config, in io.Reader, out io.Writer) error {
	answer, closing, err := answerer(name, cfg)
	if err != nil {
		return err
	}
	defer closing()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		phase := Phase(lines.Text())
		reply, err := profiled(cfg.Profile, phase, func() (Reply, error) { return answer(ctx, phase) })
		if err != nil {
			reply.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(reply); err != nil {
			return err
		}
	}
	return lines.Err()
}

// profiled writes a CPU profile of f to a file whose name begins with prefix; no prefix: none.
func profiled(prefix string, phase Phase, f func() (Reply, error)) (Reply, error) {
	if prefix == "" {
		return f()
	}
	out, err := os.Create(prefix + "-" + string(phase) + ".pprof")
	if err != nil {
		return Reply{}, err
	}
	defer out.Close() //nolint:errcheck // a profile that is cut off says so itself
	if err := pprof.StartCPUProfile(out); err != nil {
		return Reply{}, err
	}
	defer pprof.StopCPUProfile()
	return f()
}

// answerer makes the named system and returns how to ask it.
func answerer(name string, cfg Config) (answer func(context.Context, Phase) (Reply, error), closing func(), err error) {
	if f, ok := systems[name]; ok {
		s := f(cfg)
		return func(ctx context.Context, p Phase) (Reply, error) { return run(ctx, s, cfg, p) }, s.Close, nil
	}
	if shape, ok := cycles[name]; ok {
		c := &rawCycle{cfg: cfg, shape: shape()}
		return func(ctx context.Context, p Phase) (Reply, error) { return cycle(ctx, c, cfg, p) }, c.Close, nil
	}
	return nil, nil, fmt.Errorf("system %q is unknown", name)
}

// run does one phase of a system.
func run(ctx context.Context, s System, cfg Config, p Phase) (Reply, error) {
	switch p {
	case PhasePrepare:
		return Reply{}, s.Prepare(ctx)
	case PhaseSubmit:
		return timed(cfg.Tasks, func() error { return s.Submit(ctx, cfg.Tasks) })
	case PhaseDrain:
		return drain(ctx, s, cfg.Tasks)
	case PhaseLatency:
		return latency(ctx, s, cfg)
	case PhaseCycle:
	}
	return Reply{}, fmt.Errorf("a task system has no phase %q", p)
}

// cycle does one phase of a raw cycle.
func cycle(ctx context.Context, c *rawCycle, cfg Config, p Phase) (Reply, error) {
	switch p {
	case PhasePrepare:
		return Reply{}, c.Prepare(ctx)
	case PhaseCycle:
		return timed(cfg.Tasks, func() error { return c.Cycle(ctx, cfg.Tasks) })
	case PhaseSubmit:
		return timed(cfg.Tasks, func() error { return c.Submit(ctx, cfg.Tasks) })
	case PhaseDrain:
		return timed(cfg.Tasks, func() error { return c.Drain(ctx) })
	case PhaseLatency:
	}
	return Reply{}, fmt.Errorf("a raw cycle has no phase %q", p)
}

// timed is how long f took for n tasks.
func timed(n int, f func() error) (Reply, error) {
	began := time.Now()
	err := f()
	return Reply{Tasks: n, Seconds: time.Since(began).Seconds()}, err
}

// drain starts the workers and stops the clock when the system's own record says that all is done.
func drain(ctx context.Context, s System, n int) (Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainLimit, fmt.Errorf("not drained in %s", drainLimit))
	defer cancel()
	var seen atomic.Int64
	all := make(chan struct{})
	began := time.Now()
	stop, err := s.Work(ctx, func([]byte) {
		if seen.Add(1) == int64(n) {
			close(all)
		}
	})
	if err != nil {
		return Reply{}, err
	}
	select {
	case <-all:
		err = until(ctx, func() (bool, error) { return s.Drained(ctx, n) })
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	took := time.Since(began)
	if err != nil {
		err = fmt.Errorf("%d of %d tasks were handled: %w", seen.Load(), n, err)
	}
	err = errors.Join(err, stop())
	if c, ok := s.(Checker); ok && err == nil {
		err = c.Check(ctx, n)
	}
	return Reply{Tasks: n, Seconds: took.Seconds()}, err
}

// until polls a condition.
func until(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if !pause.For(ctx, pollEvery) {
			return context.Cause(ctx)
		}
	}
}

// each calls f for 0 … n-1, k at a time.
func each(ctx context.Context, n, k int, f func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range k {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := f(ctx, int(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// inChunks calls f with the sizes of the chunks of n, k at a time.
func inChunks(ctx context.Context, n, chunk, k int, f func(ctx context.Context, size int) error) error {
	return each(ctx, (n+chunk-1)/chunk, k, func(ctx context.Context, i int) error { return f(ctx, min(chunk, n-i*chunk)) })
}

// beside runs f beside its caller; stop ends its context, waits for it and returns its error.
func beside(ctx context.Context, f func(ctx context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}
