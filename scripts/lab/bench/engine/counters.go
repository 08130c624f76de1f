package engine

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	countedTasks = 20_000
	countedSlots = 80   // they make batches of about 64
	wideSlots    = 1024 // what a worker as it is shipped comes to in a backlog of short tasks; the figures are asked for it
)

// taskCost is what a number of tasks cost the servers and this process.
type taskCost struct {
	SQL, Redis labserver.Counters
	allocs     float64
	bytes      float64 // allocated
	cpu        float64 // seconds of this process
	n          int
}

// of measures f, which handles n tasks.
func (r *rig) of(ctx context.Context, n int, f func() error) (taskCost, error) {
	before, err := r.look(ctx)
	if err != nil {
		return taskCost{}, err
	}
	own := ownUse()
	if err := f(); err != nil {
		return taskCost{}, err
	}
	used := ownUse()
	after, err := r.look(ctx)
	return taskCost{
		SQL: after.SQL.Sub(before.SQL).Per(n), Redis: after.Redis.Sub(before.Redis).Per(n),
		allocs: (used.allocs - own.allocs) / float64(n), bytes: (used.bytes - own.bytes) / float64(n), cpu: (used.cpu - own.cpu) / float64(n),
		n: n,
	}, err
}

// look reads the counters of the servers that there are.
func (r *rig) look(ctx context.Context) (c taskCost, err error) {
	if r.SQL != nil {
		if c.SQL, err = r.SQL.Counters(ctx); err != nil {
			return c, err
		}
	}
	if r.Redis != nil {
		c.Redis, err = r.Redis.Counters(ctx)
	}
	return c, err
}

// ownUse is what this process has used so far.
func ownUse() taskCost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for no process of ours
	return taskCost{
		allocs: float64(m.Mallocs), bytes: float64(m.TotalAlloc),
		cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(),
	}
}

// life is the cost of accepting n tasks in bulk and of running them.
func (r *rig) life(ctx context.Context, n, slots int) (submit, drain taskCost, err error) {
	if submit, err = r.of(ctx, n, func() error { return r.submitBulk(ctx, n, bulk, 1) }); err != nil {
		return submit, drain, fmt.Errorf("submit: %w", err)
	}
	if drain, err = r.of(ctx, n, func() error { _, err := r.drain(ctx, n, slots); return err }); err != nil {
		return submit, drain, fmt.Errorf("drain: %w", err)
	}
	_, err = r.succeeded(ctx, n)
	return submit, drain, err
}

// startServers starts servers for a rig.
func startServers(ctx context.Context, kind labserver.Kind, redisArgs ...string) (s Servers, err error) {
	if s.SQL, err = labserver.Start(ctx, kind, labserver.Options{Database: "bench"}); err != nil {
		return s, err
	}
	s.Redis, err = labserver.Start(ctx, labserver.KindRedis, labserver.Options{Args: redisArgs})
	if err != nil {
		s.End()
	}
	return s, err
}

// Counters is what a task costs, in counts that carry no noise.
func Counters(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	var out []figure.Figure
	for _, slots := range []int{countedSlots, wideSlots} {
		s, err := startServers(ctx, labserver.KindMariaDB)
		if err != nil {
			return nil, err
		}
		defer s.End()
		r, err := newRig(ctx, s)
		if err != nil {
			return nil, err
		}
		defer r.close()
		submit, drain, err := r.life(ctx, countedTasks, slots)
		if err != nil {
			return nil, err
		}
		if slots == countedSlots {
			out = append(out, submitFigures(submit)...)
		}
		out = append(out, drainFigures(drain, slots)...)
	}
	return out, nil
}

// submitFigures is the cost of a bulk submit beside what was asked.
func submitFigures(c taskCost) []figure.Figure {
	name := func(what string) string { return fmt.Sprintf("bulk submit (%d a call), a task: %s", bulk, what) }
	return []figure.Figure{
		{Name: name("SQL statements"), Measured: c.SQL.Statements, Asked: 0.03, Relation: "≤", Note: fmt.Sprintf("MariaDB, flush=1, %d tasks", c.n)},
		{Name: name("commits"), Measured: c.SQL.Commits},
		{Name: name("fsyncs"), Measured: c.SQL.Fsyncs},
		{Name: name("redo"), Measured: c.SQL.RedoBytes, Unit: "B"},
		{Name: name("Redis round trips"), Measured: c.Redis.Reads},
		{Name: name("allocations"), Measured: c.allocs, Note: fmt.Sprintf("%.0f bytes", c.bytes)},
		{Name: name("CPU of the client"), Measured: c.cpu * 1e6, Unit: "µs"},
		{Name: name("CPU of the database"), Measured: c.SQL.CPU * 1e6, Unit: "µs"},
	}
}

// drainFigures is the cost of claim, run, finish and acknowledgement beside what was asked.
func drainFigures(c taskCost, slots int) []figure.Figure {
	relation := ""
	if slots == wideSlots {
		relation = "≤"
	}
	name := func(what string) string { return fmt.Sprintf("drain (%d slots), a task: %s", slots, what) }
	return []figure.Figure{
		{
			Name: name("SQL statements"), Measured: c.SQL.Statements, Asked: 0.05, Relation: relation,
			Note: fmt.Sprintf("MariaDB, flush=1, %d tasks, batches of %.0f on average", c.n, 2/c.SQL.Named["Com_commit"]),
		},
		{Name: name("commits"), Measured: c.SQL.Commits, Asked: 0.012, Relation: relation},
		{Name: name("fsyncs"), Measured: c.SQL.Fsyncs, Asked: 0.015, Relation: relation},
		{Name: name("redo"), Measured: c.SQL.RedoBytes, Unit: "B", Asked: 600, Relation: relation},
		{Name: name("rows looked at"), Measured: c.SQL.RowsRead},
		{Name: name("temporary tables"), Measured: c.SQL.TempTables},
		{Name: name("Redis commands"), Measured: c.Redis.Commands, Asked: 0.02, Relation: relation},
		{Name: name("Redis round trips"), Measured: c.Redis.Reads},
		{Name: name("allocations"), Measured: c.allocs, Note: fmt.Sprintf("%.0f bytes", c.bytes)},
		{Name: name("CPU of the client"), Measured: c.cpu * 1e6, Unit: "µs"},
		{Name: name("CPU of the database"), Measured: c.SQL.CPU * 1e6, Unit: "µs"},
		{Name: name("CPU of Redis"), Measured: c.Redis.CPU * 1e6, Unit: "µs"},
	}
}
