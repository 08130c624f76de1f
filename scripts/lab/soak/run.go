// Package soak breaks a whole installation at random for a long time and then judges all that it left.
//
//	lab soak [-for 30m] [-on main] [-postgres] [-seed N] [-transitions N] [-quiet 4m] [-name FAULT,…]
//
// Two gateways, three workers, two reclaimers and what else the transport needs run on MariaDB or Postgres, Redis or Kafka,
// Chroma and a fake embedding service. Users upload, replace, delete, cancel, retry, search and watch all the time; meanwhile
// a random subset of faults is at work, another one every 10 to 20 s, and none a quarter of the time. In the end everything
// is healed, the work comes to rest, and the checker of pkg/fsck judges tables, log, deliveries, vectors, what was paid and
// what the users saw. Every rule that the transport has something for must have judged something.
// A failure names the seed, the faults, the first violated rule and that task's history.
package soak

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/verb"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	readyLimit = 60 * time.Second
	// room is the backlog beyond which nobody uploads: the soak wants work under way, not a queue.
	room         = 600
	monitorEvery = 500 * time.Millisecond
	reportEvery  = 30 * time.Second
	calm         = 5 * time.Second // after the last fault
)

// options are the command line.
type options struct {
	verb.Flags
	length      time.Duration
	quiet       time.Duration
	transitions int64
	on          string
	postgres    bool
}

// soak is one run.
type soak struct {
	options
	transport stage.Transport
	faults    []fault // at work
	out       io.Writer
	bench     *world.Bench
	world     *world.World
	fleet     *fleet
	nemesis   *nemesis
	journal   *journal
	crowd     *crowd
	problems  problems

	backlog atomic.Int64 // tasks that have not ended
	last    atomic.Int64 // id of the last one
}

// Run is the verb soak.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := options{}
	if code, ok := verb.Parse("soak", args, stderr, &o.Flags, func(set *flag.FlagSet) {
		set.DurationVar(&o.length, "for", 30*time.Minute, "how long the faults go on")
		set.DurationVar(&o.quiet, "quiet", 4*time.Minute, "how long the work may take to come to rest afterwards")
		set.Int64Var(&o.transitions, "transitions", 0, "fewer than so many have judged too little")
		set.StringVar(&o.Names, "faults", "", "as -name; none: no fault")
		set.StringVar(&o.on, "on", stage.Redis.Name, "the transport: main, streammq, kafka or mirror")
		set.BoolVar(&o.postgres, "postgres", false, "Postgres in MariaDB's place")
	}); !ok {
		return code
	}
	transport, err := stage.On(o.on)
	if err != nil {
		return verb.Fail(stderr, "soak", process.ExitUsage, err)
	}
	chosen, err := matching(o.Names, transport)
	if err != nil {
		return verb.Fail(stderr, "soak", process.ExitUsage, err)
	}
	if o.List {
		return verb.List(stdout, chosen, func(f fault) (string, string) { return f.name, "every " + f.pause.String() + " of its shifts" })
	}
	bench, err := world.Prepare(ctx, "soak")
	if err != nil {
		return verb.Fail(stderr, "soak", process.ExitFailed, err)
	}
	s := &soak{options: o, transport: transport, faults: chosen, out: stdout, bench: bench}
	began := time.Now()
	saw, err := s.whole(ctx)
	if err != nil && s.nemesis != nil {
		err = fmt.Errorf("%w\nfaults: %s", err, s.nemesis.done())
	}
	if !(verb.Result{Name: "soak", Took: time.Since(began), Seed: o.Seed, Saw: saw, Err: err, Logs: bench.Run}).Print(stdout) {
		return process.ExitFailed
	}
	return process.ExitOK
}

// settings are short times, so that much happens in half an hour.
func settings() []string {
	return []string{
		"AUTH_MODE=keys", "INGEST_WORKER_CONCURRENCY=16", "INGEST_STOP_GRACE_MS=1000", "INGEST_SWEEP_INTERVAL_MS=1000", "EMBEDDING_TIMEOUT=10s",
		fmt.Sprintf("INGEST_LEASE_MS=%d", lease.Milliseconds()), "INGEST_MAX_CRASHES=4", "INGEST_PROMISE_SLACK_MS=1000",
		"INGEST_REDIS_RETRY_BASE_BACKOFF_MS=50", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=1000",
		"INGEST_REDIS_MAX_ATTEMPTS=8", "INGEST_REDIS_RECLAIM_IDLE_MS=3000", "INGEST_REDIS_RECLAIM_INTERVAL_MS=1000",
	}
}

// services are one process more of each than the transport's drills have: two gateways, three workers, two of the rest.
func services(t stage.Transport) []string {
	return slices.Concat(t.Services, slices.Compact(slices.Clone(t.Services)))
}

// randomOf is a source of its own for each name, out of the seed.
func (s *soak) randomOf(name string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, name)                  // a hash takes everything
	return rand.New(rand.NewPCG(s.Seed, sum.Sum64())) //nolint:gosec // moments and choices of a test, no secret
}

// full tells whether the backlog is long enough.
func (s *soak) full() bool { return s.backlog.Load() >= room }

// whole is the run from the first server to the verdict.
func (s *soak) whole(ctx context.Context) (saw string, err error) {
	env := settings()
	if s.transport.RabbitMQ {
		env = append(env, world.AuditEnv()...)
	}
	s.world, err = world.New(ctx, s.bench, world.Options{
		Name: "world", Env: env, Embedder: &embedtest.Options{}, Proxied: true, CutCommits: true, Evidence: true,
		Postgres: s.postgres, Kafka: s.transport.Kafka, RabbitMQ: s.transport.RabbitMQ, Partitions: s.transport.Partitions,
	})
	if err != nil {
		return "", err
	}
	defer s.world.Close()
	if s.journal, err = openJournal(filepath.Join(s.world.Dir, "client.jsonl")); err != nil {
		return "", err
	}
	s.fleet, err = newFleet(ctx, s.world, services(s.transport)...)
	if err != nil {
		return "", err
	}
	crowd, err := newCrowd(ctx, s, s.fleet.clients())
	if err != nil {
		return "", err
	}
	s.crowd = crowd
	started := time.Now()
	moving, err := s.harm(ctx)
	if err != nil {
		return "", err
	}
	healed := time.Now()
	if err := s.rest(ctx); err != nil {
		return "", err
	}
	_, _ = fmt.Fprintf(s.out, "at rest %.0f s after the last request\n", time.Since(healed).Seconds())
	return s.judge(ctx, time.Since(started), moving)
}

// harm lets users and faults work together for the length of the run. When all have left, and the embedding service answers
// nobody, a first check looks at the work under way: at rest no lease lives and no delivery is pending.
func (s *soak) harm(ctx context.Context) (history.Report, error) {
	s.nemesis = &nemesis{faults: s.faults, world: s.world, fleet: s.fleet, problems: &s.problems, journal: s.journal, counts: map[string]int{}}
	s.together(ctx)
	if err := s.heal(ctx); err != nil {
		return nil, fmt.Errorf("after the faults: %w", err)
	}
	s.world.Embed.Clear()
	s.world.Embed.Set(embedtest.Fault{Kind: embedtest.Hang})
	if !await.Pause(ctx, calm) {
		return nil, context.Cause(ctx)
	}
	a := s.audit()
	a.Moving, a.Vectors = true, nil // the store has its turn at rest
	report, err := s.ask(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("under way, %s after the last fault: %w", calm, err)
	}
	return report, nil
}

// together is users, faults and monitor at work.
func (s *soak) together(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.length)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.crowd.work(ctx) })
	wg.Go(func() { s.monitor(ctx) })
	s.nemesis.run(ctx, s.randomOf("faults"))
	wg.Wait()
}

// monitor counts, looks after the processes, and tells how it goes.
func (s *soak) monitor(ctx context.Context) {
	started, told := time.Now(), time.Now()
	for await.Pause(ctx, monitorEvery) {
		s.count(ctx)
		if err := s.fleet.unasked(); err != nil {
			s.problems.add("%v", err)
		}
		if time.Since(told) >= reportEvery {
			told = time.Now()
			n := s.last.Load()
			_, _ = fmt.Fprintf(s.out, "%5.0f s  %7d transitions (%.0f/s)  %4d tasks under way  %s\n",
				time.Since(started).Seconds(), n, float64(n)/time.Since(started).Seconds(), s.backlog.Load(), s.nemesis.now())
		}
	}
}
