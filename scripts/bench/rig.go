package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

const (
	noopType = "noop"
	bulk     = 500 // tasks of one bulk submit
)

// servers are what a rig works on; sql nil: SQLite in a folder, redis nil: the one in process.
type servers struct {
	sql, redis *labserver.Server
}

// end ends the servers; their folders are thrown away.
func (s servers) end() {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for _, one := range []*labserver.Server{s.sql, s.redis} {
		if one != nil {
			_ = one.Kill(ctx)
		}
	}
}

// rig is the product's store, queue and runner in this process, over tasks that do nothing.
type rig struct {
	servers
	db     *taskstore.Store
	client rueidis.Client
	config redisq.Config
	sent   *redisq.Publisher
	quiet  bool // workers do not look around by the clock: what a slow machine would make more of
	ends   []func()
}

// newRig opens and migrates; close it.
func newRig(ctx context.Context, s servers) (*rig, error) {
	r := &rig{servers: s}
	if err := r.open(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) open(ctx context.Context) (err error) {
	var database, stream string
	if r.sql == nil {
		dir, err := os.MkdirTemp("", "millweir-bench-")
		if err != nil {
			return err
		}
		r.ends = append(r.ends, func() { _ = os.RemoveAll(dir) })
		database = "sqlite:" + filepath.Join(dir, "tasks.db")
	} else {
		database = r.sql.URL("")
	}
	if r.redis == nil {
		var stop func()
		if stream, stop, err = embedded.Start(); err != nil {
			return err
		}
		r.ends = append(r.ends, stop)
	} else {
		stream = r.redis.URL("")
	}
	if r.db, err = taskstore.Open(ctx, taskstore.Config{DatabaseURL: database}); err != nil {
		return err
	}
	r.ends = append(r.ends, func() { _ = r.db.Close() })
	if _, err := r.db.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if r.client, err = redisq.NewClient(stream); err != nil {
		return err
	}
	r.ends = append(r.ends, r.client.Close)
	r.config = redisq.NewDefaultConfig(stream)
	r.sent = redisq.NewPublisher(r.client, r.config, slog.New(slog.DiscardHandler), time.Now, nil)
	return nil
}

// close ends what open began, in reverse order; the servers are the caller's.
func (r *rig) close() {
	for i := len(r.ends) - 1; i >= 0; i-- {
		r.ends[i]()
	}
}

// submit accepts and sends n tasks, size of them in one call, by so many callers at the same time.
func (r *rig) submit(ctx context.Context, n, size, callers int) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for {
				first := int(next.Add(int64(size))) - size
				if first >= n || ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if _, _, err := r.submitOnce(ctx, first, min(size, n-first)); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// submitOnce accepts and sends n tasks whose payloads are first, first+1, …, and answers when their commit was known.
func (r *rig) submitOnce(ctx context.Context, first, n int) (tasks []taskstate.Task, committed time.Time, err error) {
	news := make([]taskstate.NewTask, n)
	for i := range news {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, committed, err
		}
		news[i] = taskstate.NewTask{
			Task: taskstate.Task{
				ID: id.String(), UserID: "local", Type: noopType, Channel: "http", MaxAttempts: 10, Payload: []byte(strconv.Itoa(first + i)),
			},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "local"},
		}
	}
	tasks, err = r.db.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.Moment) ([]taskstate.NewTask, error) { return news, nil })
	if err != nil {
		return nil, committed, err
	}
	committed = time.Now()
	return tasks, committed, taskrun.Publish(ctx, r.sent, tasks)
}

// noop is a kind that does nothing; it tells of each start.
type noop func(task taskstate.Task)

// Run implements taskrun.Kind.
func (f noop) Run(_ context.Context, job taskrun.Job) taskrun.Result {
	f(job.Task)
	return taskrun.Result{}
}

// Classify implements taskrun.Kind.
func (noop) Classify(err error) taskstate.Failure {
	return taskstate.Failure{Code: "BENCH", Cause: err.Error()}
}

// Decide implements taskrun.Kind.
func (noop) Decide(_ context.Context, _ taskstate.Tx, m taskstate.Moment, dones []taskrun.Done) ([]taskstate.Decision, error) {
	out := make([]taskstate.Decision, len(dones))
	for i, d := range dones {
		out[i] = taskstate.Succeed(m, d.Task, d.Holder, d.Result.Output, "")
	}
	return out, nil
}

// Also implements taskrun.Kind.
func (noop) Also(context.Context, taskstate.Tx, taskstate.Moment, []taskstate.Decision, map[string]any) error {
	return nil
}

// start runs a worker with the product's defaults and so many slots; stop lets it end what it has, flush and leave.
func (r *rig) start(slots int, kind noop) (stop func() error) {
	cfg := taskrun.NewDefaultConfig()
	cfg.Process, cfg.Policy.DLQ, cfg.Concurrency = "bench", true, slots
	if r.quiet {
		cfg.Recovery, cfg.SweepInterval = false, time.Hour
	}
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	runner := taskrun.New(cfg, taskrun.Deps{
		Store: r.db, Queue: redisq.New(r.client, r.config, log, time.Now, redisq.NewMetrics(registry)),
		Kinds: map[string]taskrun.Kind{noopType: kind}, Log: log, Metrics: registry,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// drain runs a worker until it has started n tasks and let them end, and looks whether all n of them have succeeded.
func (r *rig) drain(ctx context.Context, n, slots int) error {
	var left atomic.Int64
	left.Store(int64(n))
	all := make(chan struct{})
	stop := r.start(slots, func(taskstate.Task) {
		if left.Add(-1) == 0 {
			close(all)
		}
	})
	select {
	case <-all:
	case <-ctx.Done():
	}
	return errors.Join(context.Cause(ctx), stop())
}

// succeeded is an error unless all n tasks have succeeded and none is left on the stream's list of pending entries.
func (r *rig) succeeded(ctx context.Context, n int) error {
	counts, err := r.db.Counts(ctx, taskstate.System(), "")
	if err != nil {
		return err
	}
	stats, err := r.sent.Stats(ctx)
	if err == nil && (counts[taskstate.StatusSucceeded] != int64(n) || stats.Pending != 0) {
		err = fmt.Errorf("of %d tasks %v, %d entries pending", n, counts, stats.Pending)
	}
	return err
}
