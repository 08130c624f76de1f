package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	capacityTasks = 60_000 // that do nothing
	capacitySlots = 16     // of a worker, for tasks that take
	capacityTakes = 20 * time.Millisecond
	capacityFor   = 3 * time.Second // of tasks that take time
	capacityError = 15              // percent
	capacityTurns = 3               // of costs and what comes of them: no machine is always as fast
)

// capacityWorkers are the runs; the last one is the largest.
var capacityWorkers = []int{1, 2, 4}

// costs are what the model of capacity.md reckons with, measured on one worker.
type costs struct {
	cores float64
	task  float64 // seconds of CPU of a task, whatever shares its transactions
	share float64 // seconds of CPU of the transactions of a task that shares them with no other
	turn  float64 // seconds from the end of a task to the start of its slot's next one, on processors with nothing else to do
}

// fit finds the costs in two runs of one worker: of tasks that do nothing in wide slots, and of tasks that take time in few.
func fit(wide, few drained) costs {
	c := costs{cores: float64(runtime.NumCPU())}
	turn := capacitySlots/few.rate - capacityTakes.Seconds()
	c.turn = turn / stretch(few.rate*few.cpu/c.cores, c.cores)
	// Both runs have the shares of tasks and transactions in them: two equations.
	alone, shared := 1/together(few.rate, turn), 1/together(wideSlots, 1)
	c.share = (few.cpu - wide.cpu) / (alone - shared)
	c.task = wide.cpu - c.share*shared
	return c
}

// stretch is how many times longer a turn takes on processors that are busy for a share of their time.
func stretch(busy, cores float64) float64 { return 1 / (1 - math.Pow(busy, cores)) }

// together is how many tasks share a transaction of a worker that runs so many a second. A turn is a transaction that finishes and
// one that claims, each in one of two lanes: while one goes on, those that come meanwhile wait for the next.
func together(rate, turn float64) float64 { return 1 + rate*turn/4 }

// predict returns how many tasks a second so many workers of so many slots run, and the CPU of one. The busier the processors are
// the longer takes a turn, the fewer tasks a slot runs and the more of them share a transaction: one share of time fits.
func (c costs) predict(workers, slots int, takes time.Duration) drained {
	var d drained
	for low, high := 0.0, 1.0; high-low > 1e-9; {
		busy := (low + high) / 2
		turn := c.turn * stretch(busy, c.cores)
		d.rate = float64(workers*slots) / (takes.Seconds() + turn)
		d.cpu = c.task + c.share/together(d.rate/float64(workers), turn)
		if d.rate*d.cpu > busy*c.cores {
			low = busy
		} else {
			high = busy
		}
	}
	return d
}

// drained is what a run came to.
type drained struct {
	rate float64 // tasks a second
	cpu  float64 // seconds of CPU of a task, servers and workers
}

// load is one run of the benchmark.
type load struct {
	what              string
	workers, n, slots int
	takes             time.Duration
}

// taking is the load of tasks that take time, and nothing that of tasks that do nothing.
func taking(workers int) load {
	n := float64(workers*capacitySlots) / capacityTakes.Seconds() * capacityFor.Seconds()
	what := fmt.Sprintf("%d workers, tasks of %s, %d slots each", workers, capacityTakes, capacitySlots)
	return load{what: what, workers: workers, n: int(n), slots: capacitySlots, takes: capacityTakes}
}

func nothing(workers int) load {
	return load{what: fmt.Sprintf("%d workers, tasks that do nothing", workers), workers: workers, n: capacityTasks, slots: wideSlots}
}

// crew are workers of one database, each with connections and a name of its own, as a process has them.
type crew struct {
	Servers
	workers []*rig
	tasks   int // that they have run
}

func (c *crew) run(ctx context.Context, l load) (d drained, err error) {
	c.tasks += l.n
	if err := c.workers[0].submitBulk(ctx, l.n, bulk, 1); err != nil {
		return d, err
	}
	before := c.cpu()
	took, err := drainBy(ctx, c.workers[:l.workers], l.n, l.slots, l.takes)
	return drained{rate: PerSecond(l.n, took), cpu: (c.cpu() - before) / float64(l.n)}, err
}

// costs measures what the model reckons with.
func (c *crew) costs(ctx context.Context) (costs, error) {
	wide, err := c.run(ctx, nothing(1))
	if err != nil {
		return costs{}, err
	}
	few, err := c.run(ctx, taking(1))
	return fit(wide, few), err
}

// Capacity compares runs of 1, 2 and 4 workers with what the model of capacity.md predicts from the costs measured just before.
func Capacity(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	s, err := startServers(ctx, labserver.KindMariaDB)
	if err != nil {
		return nil, err
	}
	defer s.End()
	c := &crew{Servers: s}
	for i := range capacityWorkers[len(capacityWorkers)-1] {
		w, err := newRig(ctx, s)
		if err != nil {
			return nil, err
		}
		defer w.close()
		w.process = fmt.Sprintf("%s-%d", w.process, i)
		c.workers = append(c.workers, w)
	}
	// What a run leaves to count is counted during the next one: the first would have nothing to count.
	if _, err := c.run(ctx, nothing(1)); err != nil {
		return nil, err
	}
	var loads []load
	for _, w := range capacityWorkers {
		loads = append(loads, taking(w), nothing(w))
	}
	var tasks, shares, turns []float64
	ratios, notes := make([][]float64, len(loads)), make([]string, len(loads))
	for range capacityTurns {
		known, err := c.costs(ctx)
		if err != nil {
			return nil, err
		}
		tasks, shares, turns = append(tasks, 1e6*known.task), append(shares, 1e6*known.share), append(turns, 1e3*known.turn)
		for i, l := range loads {
			measured, err := c.run(ctx, l)
			if err != nil {
				return nil, err
			}
			predicted := known.predict(l.workers, l.slots, l.takes)
			ratios[i] = append(ratios[i], predicted.rate/measured.rate)
			notes[i] += fmt.Sprintf("predicted %.0f/s of %.0f µs of CPU, measured %.0f/s of %.0f µs; ",
				predicted.rate, 1e6*predicted.cpu, measured.rate, 1e6*measured.cpu)
		}
	}
	out := []figure.Figure{
		{Name: "CPU of a task by itself, servers and worker", Measured: figure.Median(tasks), Unit: "µs"},
		{Name: "CPU of its transactions when it shares them with no other", Measured: figure.Median(shares), Unit: "µs"},
		{Name: "turn of a slot on idle processors", Measured: figure.Median(turns), Unit: "ms"},
	}
	for i, l := range loads {
		out = append(out, figure.Figure{
			Name: l.what + ": error of the prediction", Measured: 100 * math.Abs(figure.Median(ratios[i])-1), Unit: "%",
			Asked: capacityError, Relation: "≤", Note: notes[i],
		})
	}
	size, err := sqldb.Collect(ctx, c.workers[0].db.Reader(), sqldb.Column[float64],
		"SELECT SUM(FILE_SIZE) FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE 'bench/ingest_task%'")
	if err != nil {
		return out, err
	}
	return append(out, figure.Figure{
		Name: "files of the tables, a finished task", Measured: size[0] / float64(c.tasks), Unit: "bytes",
		Note: fmt.Sprintf("%d tasks with a payload of a few bytes", c.tasks),
	}), nil
}

// cpu is what this process and its servers have used so far, in seconds.
func (s Servers) cpu() float64 {
	return ownUse().cpu + proc.CPUSeconds(s.SQL.PID()) + proc.CPUSeconds(s.Redis.PID())
}

// drainBy runs a worker on each rig until they have started n tasks, each of which takes so long, and lets them end. took is
// the time from the first task on: to join a group of Kafka takes as long as thousands of tasks.
func drainBy(ctx context.Context, workers []*rig, n, slots int, takes time.Duration) (took time.Duration, err error) {
	var left, first atomic.Int64
	left.Store(int64(n))
	all := make(chan struct{})
	task := func(taskstate.Task) {
		switch left.Add(-1) {
		case int64(n) - 1:
			first.Store(time.Now().UnixNano())
		case 0:
			close(all)
		}
		await.Pause(ctx, takes)
	}
	stops := make([]func() error, len(workers))
	for i, w := range workers {
		stops[i] = w.start(slots, task)
	}
	err = await.Closed(ctx, all)
	var group errgroup.Group // they let go at once, as processes do
	for _, stop := range stops {
		group.Go(stop)
	}
	return time.Since(time.Unix(0, first.Load())), errors.Join(err, group.Wait())
}
