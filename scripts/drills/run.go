package main

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
	"github.com/millweir/millweir/scripts/lab/world"
)

// tidyLimit is what a drill beyond its limit gets to stop its servers.
const tidyLimit = 40 * time.Second

// drill is one experiment. Its run answers what it saw, in a few words, or what was wrong.
type drill struct {
	name  string
	what  string        // what is broken, for -list
	limit time.Duration // a drill that takes longer, its load apart, has failed
	run   func(ctx context.Context, d *stage) (string, error)
}

// stage is what a drill works with.
type stage struct {
	bench  *world.Bench
	name   string
	load   time.Duration // how long a drill keeps its load and its faults up
	random *rand.Rand
	said   *notebook // what the checker said of this drill
	// partitions above 1 is INGEST_STREAM_PARTITIONS of the drill's services.
	partitions int
	// defaults leaves the services' settings as they are: none is shortened.
	defaults bool
}

// settings are the program's flags for every drill.
type settings struct {
	load time.Duration
	seed uint64
	said *notebook // what the checker said of all drills
}

// drills in the order of their runs.
var drills = []drill{
	{"main-reproduction", "Chroma unreachable, two attempts, no backoff", 2 * time.Minute, reproduction},
	{"main-kill9-worker", "gateway, workers and reclaimer killed at random", 3 * time.Minute, kill9Workers},
	{"main-kill9-postgres", "the same on Postgres", 3 * time.Minute, kill9Postgres},
	{"main-kill9-dev", "the all-in-one killed at random", 3 * time.Minute, kill9Dev},
	{"main-kill9-each", "gateway, worker and reclaimer killed in turn, their absence lasting", 3 * time.Minute, kill9Each},
	{"main-kill9-all", "all services killed at once and started in random order", 3 * time.Minute, kill9All},
	{"main-stop-worker", "a worker paused beyond its leases, again and again", 3 * time.Minute, stopWorkers},
	{"main-stop-reclaimer", "the reclaimer paused beyond its leases, again and again, with retries to run", 3 * time.Minute, stopReclaimer},
	{"main-stop-api", "the gateway paused beyond the slack of its promises, again and again", 3 * time.Minute, stopAPI},
	{"main-zombie", "a worker paused beyond its leases and woken after the takeover", 3 * time.Minute, zombie},
	{"main-poison", "a document that kills its worker beside 20 innocent ones", 3 * time.Minute, poison},
	{"main-sigterm", "workers, gateway and all-in-one stopped in the middle of work", 3 * time.Minute, sigterm},
	{"main-commit-unknown", "the answers of COMMITs cut, before and after the commit, on MariaDB", 3 * time.Minute, commitUnknown},
	{"main-commit-unknown-postgres", "the same on Postgres", 3 * time.Minute, commitUnknownPostgres},
	{"main-slow", "slow connections to database, Redis, Chroma and embedding service in turn", 3 * time.Minute, slowNet},
	{"main-halfopen", "connections to each that stay and say nothing", 3 * time.Minute, halfOpenNet},
	{"main-reset", "connections to each that break off before the answer", 3 * time.Minute, resetNet},
	{"main-redis-loss", "Redis killed, started empty, flushed, its group destroyed, its stream deleted", 3 * time.Minute, redisLoss},
	{"main-redis-flush", "FLUSHALL with 10,000 tasks queued", 8 * time.Minute, redisFlush},
	{"main-redis-silent", "Redis paused: its connections stay open and say nothing", 3 * time.Minute, redisSilent},
	{"main-redis-failover", "the primary of a Sentinel set killed, twice", 3 * time.Minute, redisFailover},
	{"main-sse", "1,000 clients of event streams coming and going, the gateway stopped and killed", 4 * time.Minute, sse},
	{"main-db-restart", "MariaDB killed, then away for 10 s", 3 * time.Minute, databaseRestart},
	{"main-chroma-faults", "Chroma away for 20 s, 500, 429, cut answers, a wrong dimension", 3 * time.Minute, chromaFaults},
	{"main-embed-faults", "embedding service: 429, an error with 200, a wrong count, NaN, no answer", 3 * time.Minute, embedFaults},
	{"main-power-loss", "all services killed, and what was not flushed gone from the upload folder", 3 * time.Minute, powerLoss},
	{"main-disk-full", "the upload folder full", 3 * time.Minute, diskFull},
	{"main-memory", "documents that eat memory beside innocent ones", 3 * time.Minute, memoryLimit},
	{"main-defaults", "workers at work, gateway, reclaimer and Redis killed, on default settings", 20 * time.Minute, redisDefaults},
	{"main-full-load", "workers, reclaimer and Redis killed by turns while 1,000 tasks a second and more run", 8 * time.Minute, redisFullLoad},
	{"kafka-reproduction", "no broker: events die by the formula, and are revived when it comes", 3 * time.Minute, kafkaReproduction},
	{"kafka-broker", "the broker killed for 20 s", 4 * time.Minute, kafkaBroker},
	{"kafka-kill9", "relays, consumers, gateway and reclaimer killed at random", 4 * time.Minute, kafkaKill9},
	{"kafka-two-relays", "250 events a second from concurrent transactions, two relays killed in turn", 4 * time.Minute, twoRelays},
	{"kafka-rebalance", "consumers joining and leaving every 5 s, tasks longer than a session", 5 * time.Minute, kafkaRebalance},
	{"kafka-loss", "the broker started with nothing", 4 * time.Minute, kafkaLoss},
	{"kafka-switch", "from Redis to Kafka and back, all killed each time", 4 * time.Minute, kafkaSwitch},
	{"kafka-defaults", "consumers at work, relay, gateway, reclaimer and broker killed, on default settings", 8 * time.Minute, kafkaDefaults},
	{"kafka-full-load", "workers, reclaimer, relays and broker killed by turns while 1,000 tasks a second and more run", 8 * time.Minute, kafkaFullLoad},
	{"streammq-reproduction", "Chroma unreachable, two attempts, no backoff; on partitions", 2 * time.Minute, onPartitions(reproduction)},
	{"streammq-rebalance", "workers joining and leaving every 3 s while documents get version after version", 4 * time.Minute, onPartitions(partitionsRebalance)},
	{"streammq-kill9-worker", "gateway, workers and reclaimer killed at random; on partitions", 3 * time.Minute, onPartitions(kill9Workers)},
	{"streammq-kill9-postgres", "gateway, workers and reclaimer killed at random, on Postgres; on partitions", 3 * time.Minute, onPartitions(kill9Postgres)},
	{"streammq-kill9-dev", "the all-in-one killed at random; on partitions", 3 * time.Minute, onPartitions(kill9Dev)},
	{"streammq-kill9-each", "gateway, worker and reclaimer killed in turn, their absence lasting; on partitions", 3 * time.Minute, onPartitions(kill9Each)},
	{"streammq-kill9-all", "all services killed at once and started in random order; on partitions", 3 * time.Minute, onPartitions(kill9All)},
	{"streammq-stop-worker", "a worker paused beyond its leases, again and again; on partitions", 3 * time.Minute, onPartitions(stopWorkers)},
	{"streammq-stop-reclaimer", "the reclaimer paused beyond its leases, with retries to run; on partitions", 3 * time.Minute, onPartitions(stopReclaimer)},
	{"streammq-stop-api", "the gateway paused beyond the slack of its promises; on partitions", 3 * time.Minute, onPartitions(stopAPI)},
	{"streammq-zombie", "a worker paused beyond its leases and woken after the takeover; on partitions", 3 * time.Minute, onPartitions(zombie)},
	{"streammq-poison", "a document that kills its worker beside 20 innocent ones; on partitions", 3 * time.Minute, onPartitions(poison)},
	{"streammq-sigterm", "workers, gateway and all-in-one stopped in the middle of work; on partitions", 3 * time.Minute, onPartitions(sigterm)},
	{"streammq-commit-unknown", "the answers of COMMITs cut, before and after the commit, on MariaDB; on partitions", 3 * time.Minute, onPartitions(commitUnknown)},
	{"streammq-commit-unknown-postgres", "the same on Postgres; on partitions", 3 * time.Minute, onPartitions(commitUnknownPostgres)},
	{"streammq-slow", "slow connections to database, Redis, Chroma and embedding service in turn; on partitions", 3 * time.Minute, onPartitions(slowNet)},
	{"streammq-halfopen", "connections that stay and say nothing; on partitions", 3 * time.Minute, onPartitions(halfOpenNet)},
	{"streammq-reset", "connections that break off before the answer; on partitions", 3 * time.Minute, onPartitions(resetNet)},
	{"streammq-redis-loss", "Redis killed, started empty, flushed, groups destroyed, streams deleted; on partitions", 3 * time.Minute, onPartitions(redisLoss)},
	{"streammq-redis-flush", "FLUSHALL with 10,000 tasks queued; on partitions", 8 * time.Minute, onPartitions(redisFlush)},
	{"streammq-redis-silent", "Redis paused: its connections stay open and say nothing; on partitions", 3 * time.Minute, onPartitions(redisSilent)},
	{"streammq-redis-failover", "the primary of a Sentinel set killed, twice; on partitions", 3 * time.Minute, onPartitions(redisFailover)},
	{"streammq-sse", "1,000 clients of event streams coming and going, the gateway stopped and killed; on partitions", 4 * time.Minute, onPartitions(sse)},
	{"streammq-db-restart", "MariaDB killed, then away for 10 s; on partitions", 3 * time.Minute, onPartitions(databaseRestart)},
	{"streammq-chroma-faults", "Chroma away for 20 s, 500, 429, cut answers, a wrong dimension; on partitions", 3 * time.Minute, onPartitions(chromaFaults)},
	{"streammq-embed-faults", "embedding service: 429, an error with 200, a wrong count, NaN, no answer; on partitions", 3 * time.Minute, onPartitions(embedFaults)},
	{"streammq-power-loss", "all services killed, and what was not flushed gone from the upload folder; on partitions", 3 * time.Minute, onPartitions(powerLoss)},
	{"streammq-disk-full", "the upload folder full; on partitions", 3 * time.Minute, onPartitions(diskFull)},
	{"streammq-memory", "documents that eat memory beside innocent ones; on partitions", 3 * time.Minute, onPartitions(memoryLimit)},
	{"streammq-switch", "from one stream to partitions with tasks in flight, all killed", 3 * time.Minute, partitionsSwitch},
}

// run is the program; it answers the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("drills", flag.ContinueOnError)
	flags.SetOutput(stderr)
	prefix := flags.String("name", "", "only drills whose names begin so")
	list := flags.Bool("list", false, "list the drills and what they break")
	set := settings{said: &notebook{}}
	flags.Uint64Var(&set.seed, "seed", uint64(time.Now().UnixNano()), "of the random moments; printed with a failure")
	flags.DurationVar(&set.load, "load", time.Minute, "how long each drill keeps load and faults up")
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
			_, _ = fmt.Fprintf(stdout, "%-29s %s\n", d.name, d.what)
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
	if err := set.said.summarize(stdout); err != nil && len(chosen) == len(drills) {
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
		if strings.HasPrefix(d.name, prefix) {
			out = append(out, d)
		}
	}
	return out
}

// report runs one drill within its limit and prints its line.
func (d drill) report(ctx context.Context, bench *world.Bench, set settings, stdout io.Writer) bool {
	limit := d.limit + set.load
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the drill took longer than %s", limit))
	defer cancel()
	started := time.Now()
	s := &stage{bench: bench, name: d.name, load: set.load, said: &notebook{}, random: rand.New(rand.NewPCG(set.seed, 0x6472696c6c))} //nolint:gosec // moments of faults, no secret
	saw, err := d.bounded(ctx, s)
	if set.said != nil {
		set.said.add(s.said.sum())
		err = errors.Join(err, s.said.proved(d.name, err == nil))
	}
	took := time.Since(started).Seconds()
	if err != nil {
		_, _ = fmt.Fprintf(stdout, "FAIL %s (%.1f s, seed %d): %v\n  logs: %s\n", d.name, took, set.seed, err, filepath.Join(bench.Run, d.name))
		return false
	}
	_, _ = fmt.Fprintf(stdout, "PASS %s (%.1f s): %s\n", d.name, took, saw)
	return true
}

// bounded gives a drill that does not come back after its limit a while to tidy up, and then goes on without it.
func (d drill) bounded(ctx context.Context, s *stage) (string, error) {
	type outcome struct {
		saw string
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		saw, err := d.run(ctx, s)
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
