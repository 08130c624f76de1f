package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/proxy"
	"github.com/millweir/millweir/scripts/lab/verb"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	lease = 2 * time.Second // INGEST_LEASE_MS
	// A shift of faults lasts between these; every fourth is quiet.
	shiftLeast, shiftMost = 10 * time.Second, 20 * time.Second
	quietOne              = 4
	// chosenOne in so many faults is at work in a shift.
	chosenOne = 5
	// failing is how many of a hundred requests the embedding service refuses in fair weather.
	failing = 75
)

// harm does something once and puts it right again before it returns; when ctx ends it hurries.
type harm func(ctx context.Context, n *nemesis, random *rand.Rand) error

// fault is one way to do harm.
type fault struct {
	name  string
	pause time.Duration // about the time between two of them in a shift
	do    harm
	needs string // what stands in the name of a service that it is for; "": it is for all transports
}

// faults are all that a soak does.
var faults = []fault{
	{"kill-worker", 4 * time.Second, killOne("stream-worker", "kafka-consumer"), ""},
	{"kill-api", 5 * time.Second, killOne("ingest-api"), ""},
	{"kill-reclaimer", 5 * time.Second, killOne("reclaimer"), ""},
	{"kill-relay", 5 * time.Second, killOne("outbox-relay"), "relay"},
	{"kill-mirror", 5 * time.Second, killOne("stream-mirror"), "mirror"},
	{"kill-all", 12 * time.Second, killAll, ""},
	{"stop-process", 3 * time.Second, stopProcess, ""},
	{"sigterm", 4 * time.Second, sigterm, ""},
	{"redis-kill", 8 * time.Second, restarts(func(w *world.World) *labserver.Server { return w.Redis }, 2*time.Second), "stream-"},
	{"redis-flush", 8 * time.Second, alone(redisFlush), "stream-"},
	{"redis-delete", 8 * time.Second, alone(redisDelete), "stream-"},
	{"kafka-kill", 20 * time.Second, restarts(func(w *world.World) *labserver.Server { return w.Kafka }, 3*time.Second), "kafka-"},
	{"rabbit-kill", 20 * time.Second, restarts(func(w *world.World) *labserver.Server { return w.Rabbit }, 3*time.Second), "mirror"},
	{"database-restart", 10 * time.Second, alone(databaseRestart), ""},
	{"chroma-kill", 12 * time.Second, restarts(func(w *world.World) *labserver.Server { return w.Chroma }, 2*time.Second), ""},
	{"net-slow", 5 * time.Second, network(4*time.Second, func(p *proxy.Proxy) error { return p.Slow(50*time.Millisecond, 50*time.Millisecond) }), ""},
	{"net-reset", 5 * time.Second, network(time.Second, (*proxy.Proxy).Cut), ""},
	{"net-silence", 8 * time.Second, network(6*time.Second, (*proxy.Proxy).Silence), ""},
	{"net-refuse", 8 * time.Second, network(2*time.Second, func(p *proxy.Proxy) error { p.Refuse(); return nil }), ""},
	{"commit-unknown", 2 * time.Second, commitUnknown, ""},
	{"embedder", 2 * time.Second, embedder, ""},
}

// matching returns the faults of a transport that the names ask for; "none" asks for none.
func matching(names string, on stage.Transport) ([]fault, error) {
	if names == "none" {
		return nil, nil
	}
	chosen := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !slices.ContainsFunc(on.Services, func(service string) bool { return strings.Contains(service, f.needs) })
	})
	return verb.Choose(names, chosen, func(f fault) string { return f.name })
}

// nemesis does the harm.
type nemesis struct {
	faults []fault
	world  *world.World
	fleet  *fleet

	servers  sync.Mutex // one harm to the servers and their proxies at a time
	problems *problems
	journal  *journal

	mu     sync.Mutex
	counts map[string]int
	shift  string // the faults at work now
}

// run shifts the faults until ctx ends; all is healed when it returns.
func (n *nemesis) run(ctx context.Context, random *rand.Rand) {
	n.world.Embed.Set(weather(random.Uint64()))
	for ctx.Err() == nil {
		var chosen []fault
		if random.IntN(quietOne) > 0 {
			for _, f := range n.faults {
				if random.IntN(chosenOne) == 0 {
					chosen = append(chosen, f)
				}
			}
		}
		n.begin(chosen)
		length := shiftLeast + rand.N(shiftMost-shiftLeast)
		shift, cancel := context.WithTimeout(ctx, length)
		var wg sync.WaitGroup
		for _, f := range chosen {
			own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64())) //nolint:gosec // moments of faults, no secret
			wg.Go(func() { n.repeat(shift, f, own) })
		}
		<-shift.Done()
		wg.Wait()
		cancel()
	}
	n.begin(nil)
}

// begin notes what is at work.
func (n *nemesis) begin(chosen []fault) {
	names := []string{}
	for _, f := range chosen {
		names = append(names, f.name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shift = strings.Join(names, " ")
}

// now are the faults at work, in words.
func (n *nemesis) now() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shift == "" {
		return "quiet"
	}
	return n.shift
}

// repeat does one fault again and again until its shift ends.
func (n *nemesis) repeat(ctx context.Context, f fault, random *rand.Rand) {
	for await.Pause(ctx, f.pause/2+time.Duration(random.Int64N(int64(f.pause)))) {
		err := f.do(ctx, n, random)
		n.mu.Lock()
		n.counts[f.name]++
		n.mu.Unlock()
		if err != nil && !errors.Is(err, proc.ErrExited) { // two faults met the same process
			n.problems.add("fault %s: %v", f.name, err)
		}
	}
}

// done are the faults so far, "name×count".
func (n *nemesis) done() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, f := range n.faults {
		out = append(out, fmt.Sprintf("%s×%d", f.name, n.counts[f.name]))
	}
	return strings.Join(out, " ")
}

// between is a random time.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// harm does something to a random member of a service ("": of all), if there is one that no other fault holds.
func (n *nemesis) harm(random *rand.Rand, service string, do func(*member) error) error {
	m := n.fleet.any(random, service)
	if m == nil {
		return nil
	}
	defer m.mu.Unlock()
	return do(m)
}

// killOne kills a process of the services that the transport has of these.
func killOne(services ...string) harm {
	return func(_ context.Context, n *nemesis, random *rand.Rand) error {
		for _, service := range services {
			if err := n.harm(random, service, (*member).kill); err != nil {
				return err
			}
		}
		return nil
	}
}

// killAll kills the whole fleet at once and starts it in random order.
func killAll(_ context.Context, n *nemesis, random *rand.Rand) error {
	var all []*member
	for m := n.fleet.any(random, ""); m != nil; m = n.fleet.any(random, "") {
		all = append(all, m)
	}
	for _, m := range all {
		m.proc.Kill()
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, m.start())
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// stopProcess pauses a process for longer than its leases.
func stopProcess(ctx context.Context, n *nemesis, random *rand.Rand) error {
	return n.harm(random, "", func(m *member) error { return m.pause(ctx, between(random, lease, 3*lease)) })
}

func sigterm(ctx context.Context, n *nemesis, random *rand.Rand) error {
	return n.harm(random, "", func(m *member) error { return m.stop(ctx) })
}

// alone keeps a harm to servers from meeting another one.
func alone(do harm) harm {
	return func(ctx context.Context, n *nemesis, random *rand.Rand) error {
		n.servers.Lock()
		defer n.servers.Unlock()
		return do(ctx, n, random)
	}
}

// restarts is restart of one of the world's servers, away for most at most.
func restarts(which func(*world.World) *labserver.Server, most time.Duration) harm {
	return alone(func(ctx context.Context, n *nemesis, random *rand.Rand) error {
		return restart(ctx, which(n.world), between(random, 0, most))
	})
}

// restart is kill -9 of a server and, after it was away for a while, a restart on the same data.
func restart(ctx context.Context, server *labserver.Server, away time.Duration) error {
	err := server.Kill(context.WithoutCancel(ctx))
	await.Pause(ctx, away)
	return errors.Join(err, server.Restart(context.WithoutCancel(ctx)))
}

// redisFlush forgets everything.
func redisFlush(ctx context.Context, n *nemesis, _ *rand.Rand) error {
	return n.world.Stream.Do(context.WithoutCancel(ctx), "FLUSHALL")
}

// redisDelete takes the stream or its group away.
func redisDelete(ctx context.Context, n *nemesis, random *rand.Rand) error {
	keys := n.world.Stream.Keys()
	key := keys[random.IntN(len(keys)-1)] // the last one is that of workflows, which the users have none of
	command := []string{"DEL", key}
	if random.IntN(2) == 0 {
		command = []string{"XGROUP", "DESTROY", key, world.Group}
	}
	err := n.world.Stream.Do(context.WithoutCancel(ctx), command...)
	n.world.Stream.Lost()
	if err != nil && strings.Contains(err.Error(), "requires the key to exist") {
		return nil // gone already
	}
	return err
}

// databaseRestart tells the checker of the outage.
func databaseRestart(ctx context.Context, n *nemesis, random *rand.Rand) error {
	began := time.Now()
	err := restart(ctx, n.world.SQL, between(random, 0, 3*time.Second))
	n.journal.write(fsck.ClientRecord{Op: fsck.OpOutage, Outcome: fsck.OutcomeOK, Began: began, Ended: time.Now()})
	return err
}

// network spoils the way to one server for a while.
func network(most time.Duration, spoil func(*proxy.Proxy) error) harm {
	return alone(func(ctx context.Context, n *nemesis, random *rand.Rand) error {
		all := n.world.Net.All()
		p := all[random.IntN(len(all))]
		err := spoil(p)
		await.Pause(ctx, between(random, most/4, most))
		return errors.Join(err, p.Heal())
	})
}

// commitUnknown cuts the answers of some COMMITs.
func commitUnknown(ctx context.Context, n *nemesis, random *rand.Rand) error {
	n.world.Commits.Cut(0.05, rand.New(rand.NewPCG(random.Uint64(), 0))) //nolint:gosec // moments of faults, no secret
	await.Pause(ctx, between(random, time.Second, 3*time.Second))
	n.world.Commits.Cut(0, random)
	return nil
}

// embedder lets a part of the requests go wrong in one way.
func embedder(ctx context.Context, n *nemesis, random *rand.Rand) error {
	kinds := []embedtest.Fault{
		{Kind: embedtest.Fail}, {Kind: embedtest.Fail}, {Kind: embedtest.ThrottleM, For: time.Second}, {Kind: embedtest.Throttle, For: time.Second},
		{Kind: embedtest.Busy}, {Kind: embedtest.OKError}, {Kind: embedtest.Miscount}, {Kind: embedtest.NaN}, {Kind: embedtest.Null},
		{Kind: embedtest.Hang}, {Kind: embedtest.Cut}, {Kind: embedtest.Delay, For: time.Second},
	}
	chosen := kinds[random.IntN(len(kinds))]
	part, length := 1+random.IntN(4), between(random, time.Second, 4*time.Second)
	var mu sync.Mutex
	chosen.Match = func(embedtest.Effect) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(4) < part
	}
	n.world.Embed.Clear()
	n.world.Embed.Set(chosen, weather(random.Uint64()))
	await.Pause(ctx, length)
	n.world.Embed.Clear()
	n.world.Embed.Set(weather(random.Uint64()))
	return nil
}

// weather is the embedding service on an ordinary day: it fails again and again, so that tasks have a history.
func weather(seed uint64) embedtest.Fault {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // moments of faults, no secret
	var mu sync.Mutex
	return embedtest.Fault{Kind: embedtest.Refuse, Match: func(e embedtest.Effect) bool {
		mu.Lock()
		defer mu.Unlock()
		return e.Task != "" && random.IntN(100) < failing // searches have no history
	}}
}
