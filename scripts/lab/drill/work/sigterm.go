package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	stopGrace  = 1500 * time.Millisecond // INGEST_STOP_GRACE_MS here
	stopSoon   = stopGrace + 4*time.Second
	backGoal   = time.Second // after the grace time
	sigtermDoc = 12
)

// Sigterm stops a worker whose tasks cannot end in time, a gateway under load and the all-in-one at work: each is not ready
// at once, exits with 0, and what it had in hand runs elsewhere without an attempt or a crash counted.
func Sigterm(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{Embedder: &embedtest.Options{}, Env: []string{
		"INGEST_STOP_GRACE_MS=1500", "INGEST_WORKER_CONCURRENCY=3",
	}}, "ingest-api", "stream-worker")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Hang})
	load := apiclient.Load{Target: c.Client, Clients: 3, Count: sigtermDoc, Bytes: stage.DocBytes}.Run(ctx)
	if err := await.Until(ctx, stage.LiveLimit, 10*time.Millisecond, func(ctx context.Context) error {
		held, err := tables.Running(ctx, c.DB.Reader())
		if err == nil && len(held) < 3 {
			err = fmt.Errorf("%d tasks run, must be 3", len(held))
		}
		return err
	}); err != nil {
		return "", err
	}
	took, back, err := stopWorker(ctx, c)
	if err != nil {
		return "", err
	}
	c.Embed.Clear()
	more, err := stopGateway(ctx, c)
	if err != nil {
		return "", err
	}
	load.Add(more)
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	if err := stage.Uncounted(ctx, c, "a stop"); err != nil {
		return "", err
	}
	devTook, err := stopDev(ctx, s)
	if err != nil {
		return "", fmt.Errorf("all-in-one: %w", err)
	}
	return fmt.Sprintf("worker ended in %.1f s (grace %.1f s), its 3 tasks handed back %.2f s after the grace (goal %.1f s), all-in-one in %.1f s; %s",
		took.Seconds(), stopGrace.Seconds(), back.Seconds(), backGoal.Seconds(), devTook.Seconds(), stage.Summary(load)), nil
}

// stopWorker ends the worker that hangs with its tasks, and starts its successor. It returns how long the worker took
// to end, and how long after the grace time its last task was handed back.
func stopWorker(ctx context.Context, c *stage.Cluster) (took, back time.Duration, err error) {
	worker := c.Of("stream-worker")[0]
	c.Drop(worker)
	started := time.Now()
	if err := unready(ctx, worker); err != nil {
		return 0, 0, err
	}
	if err := ended(ctx, worker, stopSoon); err != nil {
		return 0, 0, err
	}
	took = time.Since(started)
	counts, err := tables.CountStatus(ctx, c.DB.Reader())
	if err != nil {
		return 0, 0, err
	}
	if counts[taskstate.StatusQueued] != sigtermDoc {
		return 0, 0, fmt.Errorf("after the stop tasks are %v, all %d must be QUEUED", counts, sigtermDoc)
	}
	if n, err := c.Stream.Pending(ctx); err != nil || n != 0 {
		return 0, 0, fmt.Errorf("after the stop XPENDING is %d (%w), must be 0: deliveries go back at once", n, err)
	}
	if back, err = handedBack(ctx, c, started.Add(stopGrace)); err != nil {
		return 0, 0, err
	}
	_, err = c.Add("stream-worker")
	return took, back, err
}

// handedBack is how long after from the last task was handed back.
func handedBack(ctx context.Context, c *stage.Cluster, from time.Time) (last time.Duration, err error) {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return 0, err
	}
	n := 0
	for _, log := range logs {
		for _, t := range log {
			if t.Reason == taskstate.ReasonHandedBack {
				n++
				last = max(last, t.CreatedAt.Sub(from))
			}
		}
	}
	if n < 3 || last > backGoal {
		return 0, fmt.Errorf("%d tasks were handed back, the last one %.2f s after the grace: 3 are due within %.1f s", n, last.Seconds(), backGoal.Seconds())
	}
	return last, nil
}

// unready sends SIGTERM and expects that /readyz says so at once, or that the process has ended already.
func unready(ctx context.Context, p *proc.Proc) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return await.Until(ctx, 500*time.Millisecond, 5*time.Millisecond, func(ctx context.Context) error {
		status, err := p.Readyz(ctx)
		if err != nil && !p.Exited() {
			return await.Until(ctx, time.Second, 5*time.Millisecond, func(context.Context) error {
				if !p.Exited() {
					return fmt.Errorf("%s closed its address and still runs: %w", p.Name, err)
				}
				return nil
			})
		}
		if err == nil && status != http.StatusServiceUnavailable {
			return fmt.Errorf("/readyz of %s answers %d after SIGTERM", p.Name, status)
		}
		return nil
	})
}

// ended expects exit code 0 within limit.
func ended(ctx context.Context, p *proc.Proc, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w (%s)", await.ErrTimeout, limit))
	defer cancel()
	code, err := p.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s exits with %d; end of %s:\n%s", p.Name, code, p.Log, p.Tail(12))
	}
	return err
}

// stopGateway ends the gateway under load and starts another one on the same address: no request in flight is lost.
func stopGateway(ctx context.Context, c *stage.Cluster) (*apiclient.Record, error) {
	old := c.Of("ingest-api")[0]
	c.Drop(old)
	stop := stage.Background(ctx, apiclient.Load{Target: c.Client, Clients: 3, First: sigtermDoc, Bytes: stage.DocBytes, Every: 20 * time.Millisecond})
	await.Pause(ctx, time.Second)
	err := errors.Join(old.Signal(syscall.SIGTERM), ended(ctx, old, stage.StopLimit))
	if err == nil {
		_, err = c.Add("ingest-api", "HTTP_ADDR="+c.Client.Host())
	}
	await.Pause(ctx, 2*time.Second)
	return stop(), err
}

// stopDev ends the all-in-one at work; what it had in hand is done by its next start.
func stopDev(ctx context.Context, s *stage.Stage) (time.Duration, error) {
	w, err := world.New(ctx, s.Bench, world.Options{Name: s.Name + "-dev", Partitions: s.Partitions, Alone: true, Embedder: &embedtest.Options{}, Env: []string{"INGEST_STOP_GRACE_MS=1500"}})
	if err != nil {
		return 0, err
	}
	defer w.Close()
	addr := world.FreeAddr()
	p, err := w.StartDev(ctx, addr)
	if err != nil {
		return 0, err
	}
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Hang})
	client := apiclient.NewClient(p.HTTP)
	load := apiclient.Load{Target: client, Clients: 3, Count: sigtermDoc, Bytes: stage.DocBytes}.Run(ctx)
	if err := await.Closed(ctx, w.Embed.Wait(1)); err != nil {
		return 0, err
	}
	started := time.Now()
	if err := errors.Join(p.Signal(syscall.SIGTERM), ended(ctx, p, stopSoon)); err != nil {
		return 0, err
	}
	took := time.Since(started)
	w.Embed.Clear()
	if p, err = w.StartDev(ctx, addr); err != nil {
		return 0, err
	}
	_, err = verifyDev(ctx, s, w, p, client, load)
	return took, err
}
