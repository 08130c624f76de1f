package drill

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab/drill/fullload"
	"github.com/millweir/millweir/scripts/lab/drill/kafka"
	"github.com/millweir/millweir/scripts/lab/drill/scene"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

// tidyLimit is what a drill beyond its limit gets to stop its servers.
const tidyLimit = 40 * time.Second

// drill is one experiment. Its run answers what it saw, in a few words, or what was wrong.
type drill struct {
	Name  string
	what  string        // what is broken, for -list
	limit time.Duration // a drill that takes longer, its load apart, has failed
	Run   func(ctx context.Context, d *stage.Stage) (string, error)
}

// settings are the program's flags for every drill.
type settings struct {
	Load time.Duration
	seed uint64
	Said *stage.Notebook // what the checker said of all drills
}

// drills in the order of their runs.
var drills = []drill{
	{"main-reproduction", "Chroma unreachable, two attempts, no backoff", 2 * time.Minute, scene.Reproduction},
	{"main-kill9-worker", "gateway, workers and reclaimer killed at random", 3 * time.Minute, scene.Kill9Workers},
	{"main-kill9-postgres", "the same on Postgres", 3 * time.Minute, scene.Kill9Postgres},
	{"main-kill9-dev", "the all-in-one killed at random", 3 * time.Minute, scene.Kill9Dev},
	{"main-kill9-each", "gateway, worker and reclaimer killed in turn, their absence lasting", 3 * time.Minute, scene.Kill9Each},
	{"main-kill9-all", "all services killed at once and started in random order", 3 * time.Minute, scene.Kill9All},
	{"main-stop-worker", "a worker paused beyond its leases, again and again", 3 * time.Minute, scene.StopWorkers},
	{"main-stop-reclaimer", "the reclaimer paused beyond its leases, again and again, with retries to run", 3 * time.Minute, scene.StopReclaimer},
	{"main-stop-api", "the gateway paused beyond the slack of its promises, again and again", 3 * time.Minute, scene.StopAPI},
	{"main-zombie", "a worker paused beyond its leases and woken after the takeover", 3 * time.Minute, scene.Zombie},
	{"main-poison", "a document that kills its worker beside 20 innocent ones", 3 * time.Minute, scene.Poison},
	{"main-sigterm", "workers, gateway and all-in-one stopped in the middle of work", 3 * time.Minute, scene.Sigterm},
	{"main-commit-unknown", "the answers of COMMITs cut, before and after the commit, on MariaDB", 3 * time.Minute, scene.CommitUnknown},
	{"main-commit-unknown-postgres", "the same on Postgres", 3 * time.Minute, scene.CommitUnknownPostgres},
	{"main-slow", "slow connections to database, Redis, Chroma and embedding service in turn", 3 * time.Minute, scene.SlowNet},
	{"main-halfopen", "connections to each that stay and say nothing", 3 * time.Minute, scene.HalfOpenNet},
	{"main-reset", "connections to each that break off before the answer", 3 * time.Minute, scene.ResetNet},
	{"main-redis-loss", "Redis killed, started empty, flushed, its group destroyed, its stream deleted", 3 * time.Minute, scene.RedisLoss},
	{"main-redis-flush", "FLUSHALL with 10,000 tasks queued", 8 * time.Minute, scene.RedisFlush},
	{"main-redis-silent", "Redis paused: its connections stay open and say nothing", 3 * time.Minute, scene.RedisSilent},
	{"main-redis-failover", "the primary of a Sentinel set killed, twice", 3 * time.Minute, scene.RedisFailover},
	{"main-sse", "1,000 clients of event streams coming and going, the gateway stopped and killed", 4 * time.Minute, scene.SSE},
	{"main-db-restart", "MariaDB killed, then away for 10 s", 3 * time.Minute, scene.DatabaseRestart},
	{"main-chroma-faults", "Chroma away for 20 s, 500, 429, cut answers, a wrong dimension", 3 * time.Minute, scene.ChromaFaults},
	{"main-embed-faults", "embedding service: 429, an error with 200, a wrong count, NaN, no answer", 3 * time.Minute, scene.EmbedFaults},
	{"main-power-loss", "all services killed, and what was not flushed gone from the upload folder", 3 * time.Minute, scene.PowerLoss},
	{"main-disk-full", "the upload folder full", 3 * time.Minute, scene.DiskFull},
	{"main-memory", "documents that eat memory beside innocent ones", 3 * time.Minute, scene.MemoryLimit},
	{"main-defaults", "workers at work, gateway, reclaimer and Redis killed, on default settings", 20 * time.Minute, scene.RedisDefaults},
	{"main-full-load", "workers, reclaimer and Redis killed by turns while 1,000 tasks a second and more run", 8 * time.Minute, fullload.RedisFullLoad},
	{"kafka-reproduction", "no broker: events die by the formula, and are revived when it comes", 3 * time.Minute, kafka.Reproduction},
	{"kafka-broker", "the broker killed for 20 s", 4 * time.Minute, kafka.Broker},
	{"kafka-kill9", "relays, consumers, gateway and reclaimer killed at random", 4 * time.Minute, kafka.Kill9},
	{"kafka-two-relays", "250 events a second from concurrent transactions, two relays killed in turn", 4 * time.Minute, kafka.TwoRelays},
	{"kafka-rebalance", "consumers joining and leaving every 5 s, tasks longer than a session", 5 * time.Minute, kafka.Rebalance},
	{"kafka-loss", "the broker started with nothing", 4 * time.Minute, kafka.Loss},
	{"kafka-switch", "from Redis to Kafka and back, all killed each time", 4 * time.Minute, kafka.Switch},
	{"kafka-defaults", "consumers at work, relay, gateway, reclaimer and broker killed, on default settings", 8 * time.Minute, scene.KafkaDefaults},
	{"kafka-full-load", "workers, reclaimer, relays and broker killed by turns while 1,000 tasks a second and more run", 8 * time.Minute, fullload.KafkaFullLoad},
	{"streammq-reproduction", "Chroma unreachable, two attempts, no backoff; on partitions", 2 * time.Minute, onPartitions(scene.Reproduction)},
	{"streammq-rebalance", "workers joining and leaving every 3 s while documents get version after version", 4 * time.Minute, onPartitions(scene.PartitionsRebalance)},
	{"streammq-kill9-worker", "gateway, workers and reclaimer killed at random; on partitions", 3 * time.Minute, onPartitions(scene.Kill9Workers)},
	{"streammq-kill9-postgres", "gateway, workers and reclaimer killed at random, on Postgres; on partitions", 3 * time.Minute, onPartitions(scene.Kill9Postgres)},
	{"streammq-kill9-dev", "the all-in-one killed at random; on partitions", 3 * time.Minute, onPartitions(scene.Kill9Dev)},
	{"streammq-kill9-each", "gateway, worker and reclaimer killed in turn, their absence lasting; on partitions", 3 * time.Minute, onPartitions(scene.Kill9Each)},
	{"streammq-kill9-all", "all services killed at once and started in random order; on partitions", 3 * time.Minute, onPartitions(scene.Kill9All)},
	{"streammq-stop-worker", "a worker paused beyond its leases, again and again; on partitions", 3 * time.Minute, onPartitions(scene.StopWorkers)},
	{"streammq-stop-reclaimer", "the reclaimer paused beyond its leases, with retries to run; on partitions", 3 * time.Minute, onPartitions(scene.StopReclaimer)},
	{"streammq-stop-api", "the gateway paused beyond the slack of its promises; on partitions", 3 * time.Minute, onPartitions(scene.StopAPI)},
	{"streammq-zombie", "a worker paused beyond its leases and woken after the takeover; on partitions", 3 * time.Minute, onPartitions(scene.Zombie)},
	{"streammq-poison", "a document that kills its worker beside 20 innocent ones; on partitions", 3 * time.Minute, onPartitions(scene.Poison)},
	{"streammq-sigterm", "workers, gateway and all-in-one stopped in the middle of work; on partitions", 3 * time.Minute, onPartitions(scene.Sigterm)},
	{"streammq-commit-unknown", "the answers of COMMITs cut, before and after the commit, on MariaDB; on partitions", 3 * time.Minute, onPartitions(scene.CommitUnknown)},
	{"streammq-commit-unknown-postgres", "the same on Postgres; on partitions", 3 * time.Minute, onPartitions(scene.CommitUnknownPostgres)},
	{"streammq-slow", "slow connections to database, Redis, Chroma and embedding service in turn; on partitions", 3 * time.Minute, onPartitions(scene.SlowNet)},
	{"streammq-halfopen", "connections that stay and say nothing; on partitions", 3 * time.Minute, onPartitions(scene.HalfOpenNet)},
	{"streammq-reset", "connections that break off before the answer; on partitions", 3 * time.Minute, onPartitions(scene.ResetNet)},
	{"streammq-redis-loss", "Redis killed, started empty, flushed, groups destroyed, streams deleted; on partitions", 3 * time.Minute, onPartitions(scene.RedisLoss)},
	{"streammq-redis-flush", "FLUSHALL with 10,000 tasks queued; on partitions", 8 * time.Minute, onPartitions(scene.RedisFlush)},
	{"streammq-redis-silent", "Redis paused: its connections stay open and say nothing; on partitions", 3 * time.Minute, onPartitions(scene.RedisSilent)},
	{"streammq-redis-failover", "the primary of a Sentinel set killed, twice; on partitions", 3 * time.Minute, onPartitions(scene.RedisFailover)},
	{"streammq-sse", "1,000 clients of event streams coming and going, the gateway stopped and killed; on partitions", 4 * time.Minute, onPartitions(scene.SSE)},
	{"streammq-db-restart", "MariaDB killed, then away for 10 s; on partitions", 3 * time.Minute, onPartitions(scene.DatabaseRestart)},
	{"streammq-chroma-faults", "Chroma away for 20 s, 500, 429, cut answers, a wrong dimension; on partitions", 3 * time.Minute, onPartitions(scene.ChromaFaults)},
	{"streammq-embed-faults", "embedding service: 429, an error with 200, a wrong count, NaN, no answer; on partitions", 3 * time.Minute, onPartitions(scene.EmbedFaults)},
	{"streammq-power-loss", "all services killed, and what was not flushed gone from the upload folder; on partitions", 3 * time.Minute, onPartitions(scene.PowerLoss)},
	{"streammq-disk-full", "the upload folder full; on partitions", 3 * time.Minute, onPartitions(scene.DiskFull)},
	{"streammq-memory", "documents that eat memory beside innocent ones; on partitions", 3 * time.Minute, onPartitions(scene.MemoryLimit)},
	{"streammq-switch", "from one stream to partitions with tasks in flight, all killed", 3 * time.Minute, scene.PartitionsSwitch},
}

// Run is the program; it answers the exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("drills", flag.ContinueOnError)
	flags.SetOutput(stderr)
	prefix := flags.String("name", "", "only drills whose names begin so")
	list := flags.Bool("list", false, "list the drills and what they break")
	set := settings{Said: &stage.Notebook{}}
	flags.Uint64Var(&set.seed, "seed", uint64(time.Now().UnixNano()), "of the random moments; printed with a failure")
	flags.DurationVar(&set.Load, "load", time.Minute, "how long each drill keeps load and faults up")
	parallel := flags.Int("parallel", 1, "drills at a time")
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
			_, _ = fmt.Fprintf(stdout, "%-29s %s\n", d.Name, d.what)
		}
		return process.ExitOK
	}
	bench, err := world.Prepare(ctx, "drills")
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "drills:", err)
		return process.ExitFailed
	}
	return perform(ctx, chosen, bench, set, *parallel, stdout)
}

// perform runs drills, parallel at a time, and returns the exit code.
func perform(ctx context.Context, chosen []drill, bench *world.Bench, set settings, parallel int, stdout io.Writer) int {
	var group errgroup.Group
	group.SetLimit(max(1, parallel))
	var failed atomic.Bool
	lines := &lineWriter{to: stdout}
	for _, d := range chosen {
		group.Go(func() error {
			if ctx.Err() != nil || !d.report(ctx, bench, set, lines) {
				failed.Store(true)
			}
			return nil
		})
	}
	_ = group.Wait() // what failed is in the lines
	if err := summarize(set.Said, stdout); err != nil && len(chosen) == len(drills) {
		_, _ = fmt.Fprintln(stdout, "FAIL over all drills:", err)
		return process.ExitFailed
	}
	if failed.Load() {
		return process.ExitFailed
	}
	return process.ExitOK
}

// lineWriter keeps the words of drills that end at the same time apart.
type lineWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// matching are the drills whose names begin with prefix.
func matching(prefix string) []drill {
	var out []drill
	for _, d := range drills {
		if strings.HasPrefix(d.Name, prefix) {
			out = append(out, d)
		}
	}
	return out
}

// report runs one drill within its limit and prints its line.
func (d drill) report(ctx context.Context, bench *world.Bench, set settings, stdout io.Writer) bool {
	limit := d.limit + set.Load
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the drill took longer than %s", limit))
	defer cancel()
	started := time.Now()
	s := &stage.Stage{Bench: bench, Name: d.Name, Load: set.Load, Said: &stage.Notebook{}, Random: rand.New(rand.NewPCG(set.seed, 0x6472696c6c))} //nolint:gosec // moments of faults, no secret
	saw, err := d.bounded(ctx, s)
	if set.Said != nil {
		set.Said.Add(s.Said.Sum())
		err = errors.Join(err, proved(s.Said, d.Name, err == nil))
	}
	took := time.Since(started).Seconds()
	if err != nil {
		_, _ = fmt.Fprintf(stdout, "FAIL %s (%.1f s, seed %d): %v\n  logs: %s\n", d.Name, took, set.seed, err, filepath.Join(bench.Run, d.Name))
		return false
	}
	_, _ = fmt.Fprintf(stdout, "PASS %s (%.1f s): %s\n", d.Name, took, saw)
	return true
}

// bounded gives a drill that does not come back after its limit a while to tidy up, and then goes on without it.
func (d drill) bounded(ctx context.Context, s *stage.Stage) (string, error) {
	type outcome struct {
		saw string
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		saw, err := d.Run(ctx, s)
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

// onPartitions is a drill with its deliveries in the partitions of a topic.
func onPartitions(run func(context.Context, *stage.Stage) (string, error)) func(context.Context, *stage.Stage) (string, error) {
	return func(ctx context.Context, s *stage.Stage) (string, error) {
		s.Partitions = scene.DrillPartitions
		return run(ctx, s)
	}
}
