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
	capacityTasks = 40_000 // that do nothing
	capacitySlots = 16     // of a worker, for tasks that take
	capacityTakes = 20 * time.Millisecond
	capacityTurn  = 2 * time.Millisecond // of a slot, from the end of a task to the start of the next: the model's
	capacityFor   = 4 * time.Second      // of tasks that take time
	capacityError = 15                   // percent
)

// capacityWorkers are the runs; the last one is the largest.
var capacityWorkers = []int{1, 2, 4}

// Capacity compares runs of 1, 2 and 4 workers with what the model of capacity.md predicts: W workers of S slots run
// min(W · S ÷ (time of a task + turn of a slot), cores ÷ CPU of a task) tasks a second. The CPU is that of one run before.
func Capacity(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	s, err := startServers(ctx, labserver.KindMariaDB)
	if err != nil {
		return nil, err
	}
	defer s.End()
	workers := make([]*rig, capacityWorkers[len(capacityWorkers)-1])
	for i := range workers { // each has connections of its own, as a process has
		if workers[i], err = newRig(ctx, s); err != nil {
			return nil, err
		}
		defer workers[i].close()
	}
	tasks := 0
	run := func(w, n, slots int, takes time.Duration) (rate, cpu float64, err error) {
		tasks += n
		if err := workers[0].submitBulk(ctx, n, bulk, 1); err != nil {
			return 0, 0, err
		}
		before := s.cpu()
		took, err := drainBy(ctx, workers[:w], n, slots, takes)
		return PerSecond(n, took), (s.cpu() - before) / float64(n), err
	}
	_, cpu, err := run(1, capacityTasks, wideSlots, 0)
	if err != nil {
		return nil, err
	}
	bound := float64(runtime.NumCPU()) / cpu
	out := []figure.Figure{{Name: "CPU of a task, servers and worker", Measured: 1e6 * cpu, Unit: "µs", Note: fmt.Sprintf("%d cores end at %.0f tasks a second", runtime.NumCPU(), bound)}}
	for _, w := range capacityWorkers {
		byTime := float64(w*capacitySlots) / (capacityTakes + capacityTurn).Seconds()
		for _, c := range []struct {
			what      string
			n, slots  int
			takes     time.Duration
			predicted float64
		}{
			{"tasks of 20 ms, 16 slots each", int(byTime * capacityFor.Seconds()), capacitySlots, capacityTakes, min(byTime, bound)},
			{"tasks that do nothing", capacityTasks, wideSlots, 0, bound},
		} {
			rate, cpu, err := run(w, c.n, c.slots, c.takes)
			if err != nil {
				return out, err
			}
			out = append(out, figure.Figure{
				Name: fmt.Sprintf("%d workers, %s: error of the prediction", w, c.what), Measured: 100 * math.Abs(c.predicted/rate-1), Unit: "%",
				Asked: capacityError, Relation: "≤", Note: fmt.Sprintf("predicted %.0f/s, measured %.0f/s, %.0f µs of CPU a task", c.predicted, rate, 1e6*cpu),
			})
		}
	}
	size, err := sqldb.Collect(ctx, workers[0].db.Reader(), sqldb.Column[float64],
		"SELECT SUM(FILE_SIZE) FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE 'bench/ingest_task%'")
	if err != nil {
		return out, err
	}
	return append(out, figure.Figure{
		Name: "files of the tables, a finished task", Measured: size[0] / float64(tasks), Unit: "bytes", Note: fmt.Sprintf("%d tasks with a payload of a few bytes", tasks),
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
