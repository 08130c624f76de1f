package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	noopTasks   = 20_000
	bulkCallers = 4
	noopCallers = 64 // callers that submit one task at a time
	noopRate    = 500
	noopSeconds = 10
	noopWarm    = noopRate // tasks of the first second, which count in no figure
	openCalls   = 512      // submits of the open loop that may be under way
)

// NoopOn is the benchmark on a kind of database; "" is SQLite with the Redis in process.
func NoopOn(kind labserver.Kind, redisArgs ...string) func(context.Context, *world.Bench) ([]figure.Figure, error) {
	return func(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
		var s Servers
		var err error
		if kind != "" {
			if s, err = startServers(ctx, kind, redisArgs...); err != nil {
				return nil, err
			}
			defer s.End()
		}
		return noopsOf(ctx, s)
	}
}

// noops measures latency on a quiet system first, then rates.
func (r *rig) noops(ctx context.Context) ([]figure.Figure, error) {
	out, err := r.latencies(ctx)
	if err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	done := noopWarm + noopRate*noopSeconds
	var drained time.Duration
	var pending int64
	for _, way := range []struct {
		name   string
		submit func() error
	}{
		{fmt.Sprintf("submit, %d a call", bulk), func() error { return r.submitBulk(ctx, noopTasks, bulk, bulkCallers) }},
		{fmt.Sprintf("submit, one a call, %d callers", noopCallers), func() error { return r.submitSingly(ctx, noopTasks, noopCallers) }},
	} {
		began := time.Now()
		if err := way.submit(); err != nil {
			return out, fmt.Errorf("%s: %w", way.name, err)
		}
		out = append(out, figure.Figure{Name: way.name, Measured: PerSecond(noopTasks, time.Since(began)), Unit: "/s", Note: fmt.Sprintf("%d tasks, committed and on the stream", noopTasks)})
		if r.Kafka != nil {
			if err := r.sent(ctx); err != nil {
				return out, fmt.Errorf("%s: %w", way.name, err)
			}
			out = append(out, figure.Figure{Name: "…and sent by the relay", Measured: PerSecond(noopTasks, time.Since(began)), Unit: "/s"})
		}
		took, err := r.drain(ctx, noopTasks, wideSlots)
		if err != nil {
			return out, fmt.Errorf("drain: %w", err)
		}
		drained += took
		done += noopTasks
		if pending, err = r.succeeded(ctx, done); err != nil {
			return out, err
		}
	}
	return append(out, figure.Figure{
		Name: "drain", Measured: PerSecond(2*noopTasks, drained), Unit: "/s",
		Note: fmt.Sprintf("%d slots, twice %d tasks, every outcome committed, %d entries not acknowledged", wideSlots, noopTasks, pending),
	}), nil
}

// NoopKafka is the benchmark on the Kafka transport, and the same drain on the Redis transport of the same run beside it.
func NoopKafka(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	var rates [2]float64
	var out []figure.Figure
	for i, kafka := range []bool{false, true} {
		s, err := startServers(ctx, labserver.KindMariaDB)
		if err != nil {
			return nil, err
		}
		if kafka {
			if s.Kafka, err = labserver.Start(ctx, labserver.KindKafka, labserver.Options{}); err != nil {
				s.End()
				return nil, err
			}
		}
		figures, err := noopsOf(ctx, s)
		s.End()
		if err != nil {
			return nil, err
		}
		rates[i] = figures[len(figures)-1].Measured
		out = figures
	}
	return append(out, figure.Figure{
		Name: "drain ÷ drain of the Redis transport", Measured: rates[1] / rates[0], Unit: "×", Asked: 0.9, Relation: "≥",
		Note: fmt.Sprintf("%.0f/s there, in the same run", rates[0]),
	}), nil
}

// noopsOf measures on a rig of its own.
func noopsOf(ctx context.Context, s Servers) ([]figure.Figure, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.noops(ctx)
}

// PerSecond is a rate.
func PerSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

// moments are those of one task in an open loop.
type moments struct {
	single
	intended time.Time
	started  atomic.Int64 // Unix time in ns
}

// latencies submits single tasks at a fixed rate, whatever becomes of those before.
func (r *rig) latencies(ctx context.Context) ([]figure.Figure, error) {
	tasks := make([]moments, noopWarm+noopRate*noopSeconds)
	var left atomic.Int64
	left.Store(int64(len(tasks)))
	all := make(chan struct{})
	stop := r.start(wideSlots, func(t taskstate.Task) {
		i, err := strconv.Atoi(string(t.Payload))
		if err == nil && tasks[i].started.CompareAndSwap(0, time.Now().UnixNano()) && left.Add(-1) == 0 {
			close(all)
		}
	})
	err := r.openLoop(ctx, tasks)
	if err == nil {
		err = await.Closed(ctx, all)
	}
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	ended, err := r.ended(ctx)
	if err != nil {
		return nil, err
	}
	var starts, wholes []time.Duration
	for i := range tasks[noopWarm:] {
		t := &tasks[noopWarm+i]
		end, ok := ended[t.task.ID]
		if !ok {
			return nil, fmt.Errorf("task %s has not succeeded", t.task.ID)
		}
		starts = append(starts, time.Unix(0, t.started.Load()).Sub(t.committed))
		wholes = append(wholes, end.Sub(t.intended))
	}
	note := fmt.Sprintf("one task a call, joined as uploads are, %d/s for %d s, open loop, %d slots", noopRate, noopSeconds, wideSlots)
	var asked [2]float64
	relation := ""
	if r.Kafka == nil { // the goals of the Redis transport
		asked, relation = [2]float64{3, 20}, "≤"
	}
	return []figure.Figure{
		{Name: fmt.Sprintf("commit → handler start at %d/s, p50", noopRate), Measured: figure.Ms(figure.Percentile(starts, 50)), Unit: "ms", Asked: asked[0], Relation: relation, Note: note},
		{Name: fmt.Sprintf("commit → handler start at %d/s, p99", noopRate), Measured: figure.Ms(figure.Percentile(starts, 99)), Unit: "ms", Asked: asked[1], Relation: relation},
		{Name: fmt.Sprintf("time to send → SUCCEEDED at %d/s, p50", noopRate), Measured: figure.Ms(figure.Percentile(wholes, 50)), Unit: "ms"},
		{Name: fmt.Sprintf("time to send → SUCCEEDED at %d/s, p99", noopRate), Measured: figure.Ms(figure.Percentile(wholes, 99)), Unit: "ms"},
	}, nil
}

// openLoop submits each task at its time.
func (r *rig) openLoop(ctx context.Context, tasks []moments) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(openCalls)
	began := time.Now()
	for i := range tasks {
		t := &tasks[i]
		t.intended = began.Add(time.Duration(i) * time.Second / noopRate)
		if wait := time.Until(t.intended); wait > 0 && !await.Pause(ctx, wait) {
			break
		}
		t.task = world.NewNoop(i)
		group.Go(func() error { return r.submitOne(ctx, &t.single) })
	}
	return group.Wait()
}

// ended returns when each task succeeded, by the database's clock, which is this machine's.
func (r *rig) ended(ctx context.Context) (map[string]time.Time, error) {
	logs, err := tables.Logs(ctx, r.db.Reader())
	out := make(map[string]time.Time, len(logs))
	for _, log := range logs {
		if last := log[len(log)-1]; last.To == taskstate.StatusSucceeded {
			out[last.TaskID] = last.CreatedAt
		}
	}
	return out, err
}
