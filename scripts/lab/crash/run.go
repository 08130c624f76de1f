// Package crash kills the product's real processes at every point that the source marks (pkg/crash), lets others
// mend what is left, and judges it.
//
//	lab crash [-name PREFIX,…] [-kind kill|stop|error|sleep] [-seed N] [-lanes N] [-mutant NAME] [-list]
//
// One line for each point; after a failure what was found and the guilty task's log. The exit code is 1 when one failed, was
// never reached, or did not end its process. Logs stay under .run/crashpoints/LANE.
//
//	kill   SIGKILL at the point
//	stop   SIGSTOP at the point, SIGCONT after two leases: its owner comes back as a zombie
//	error  the point returns an error; only where the source can return one (crash.Fault)
//	sleep  the point takes two leases
package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab/verb"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	maxLanes   = 8
	otherLanes = 1  // on Kafka, and with RabbitMQ, beside those of the Redis transport
	laneLimit  = 15 // databases that a Redis server has beside the first one
	trialLimit = 2 * time.Minute
)

// kinds are what a point can be made to do.
var kinds = []string{"kill", "stop", "error", "sleep"}

// servers are what a scene needs besides a database and a vector store.
type servers string

const (
	onRedis  servers = "redis"
	onKafka  servers = "kafka"
	onRabbit servers = "rabbit" // Redis, and RabbitMQ for copies
)

// plan is one run of the program.
type plan struct {
	verb.Flags
	kind   string
	points []point
	lanes  int
	mutant string // a bug in every process (package scripts/lab/mutants); empty: none
	out    io.Writer

	worlds map[servers]*world.World
	mu     sync.Mutex
	parts  map[servers]int // lanes made so far, those that were given up too
	hit    int
	bad    int
	judged map[string]int64 // events by rule, of the lanes that came to their end
}

// Run is the verb crash.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := &plan{out: &verb.Lines{To: stdout}, judged: map[string]int64{}, parts: map[servers]int{}, worlds: map[servers]*world.World{}}
	if code, ok := verb.Parse("crash", args, stderr, &p.Flags, func(set *flag.FlagSet) {
		set.StringVar(&p.kind, "kind", "kill", "what a point does: "+strings.Join(kinds, ", "))
		set.IntVar(&p.lanes, "lanes", 4, "points that are tried side by side, each in a world of its own on the same servers")
		set.StringVar(&p.mutant, "mutant", "", "seed this bug into every process: the run has to fail")
	}); !ok {
		return code
	}
	p.lanes = min(max(1, p.lanes), maxLanes)
	if err := p.choose(); err != nil {
		return verb.Fail(stderr, "crash", process.ExitUsage, err)
	}
	if p.List {
		return verb.List(stdout, p.points, func(at point) (string, string) { return at.name, at.place })
	}
	started := time.Now()
	if err := p.all(ctx); err != nil {
		return verb.Fail(stderr, "crash", process.ExitFailed, err)
	}
	_, _ = fmt.Fprintf(stdout, "%d points, %d hit (%d %%), %d failed, kind %s, %.0f s\n",
		len(p.points), p.hit, 100*p.hit/len(p.points), p.bad, p.kind, time.Since(started).Seconds())
	if p.Names == "" && p.kind == "kill" && p.bad == 0 {
		_, _ = fmt.Fprintln(stdout, p.words())
		if idle := p.idle(); len(idle) > 0 {
			_, _ = fmt.Fprintf(stdout, "FAIL the rules %v judged nothing\n", idle)
			return process.ExitFailed
		}
	}
	if p.bad > 0 || p.hit < len(p.points) {
		return process.ExitFailed
	}
	return process.ExitOK
}

// choose lists the points to try and checks that each of the source has a scene and the other way round.
func (p *plan) choose() error {
	if !slices.Contains(kinds, p.kind) {
		return fmt.Errorf("-kind %q: allowed are %s", p.kind, strings.Join(kinds, ", "))
	}
	root, err := world.Root()
	if err != nil {
		return err
	}
	all, err := listPoints(root)
	if err == nil {
		err = matchScenes(all)
	}
	if err != nil {
		return err
	}
	if p.kind == "error" {
		all = slices.DeleteFunc(all, func(at point) bool { return !at.fault })
	}
	p.points, err = verb.Choose(p.Names, all, func(at point) string { return at.name })
	return err
}

// matchScenes compares the points of the source with the scenes that reach them.
func matchScenes(points []point) error {
	var errs []error
	known := map[string]bool{}
	for _, at := range points {
		known[at.name] = true
		if _, ok := scenes[at.name]; !ok {
			errs = append(errs, fmt.Errorf("%s (%s) has no scene that reaches it", at.name, at.place))
		}
	}
	for name := range scenes {
		if !known[name] {
			errs = append(errs, fmt.Errorf("the source has no point %s", name))
		}
	}
	return errors.Join(errs...)
}

// all tries every point, each transport on servers of its own; lanes take the next point when they are done with one, slow ones first.
func (p *plan) all(ctx context.Context) error {
	sorts := []world.Sort{world.WithPoints}
	if p.mutant != "" {
		sorts = append(sorts, world.WithBugs)
	}
	bench, err := world.Prepare(ctx, "crashpoints", sorts...)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(p.Seed, 0x6372617368)) //nolint:gosec // an order, no secret
	order := slices.Clone(p.points)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	quick := slices.DeleteFunc(slices.Clone(order), func(at point) bool { return scenes[at.name].slow })
	order = append(slices.DeleteFunc(order, func(at point) bool { return !scenes[at.name].slow }), quick...)
	var wg sync.WaitGroup
	var errs [3]error
	for i, on := range []servers{onRedis, onKafka, onRabbit} {
		mine := slices.DeleteFunc(slices.Clone(order), func(at point) bool { return scenes[at.name].servers() != on })
		if len(mine) == 0 {
			continue
		}
		lanes := otherLanes
		if on == onRedis {
			lanes = p.lanes
		}
		if p.worlds[on], err = world.New(ctx, bench, world.Options{Name: "servers-" + string(on), Kafka: on == onKafka, RabbitMQ: on == onRabbit}); err != nil {
			return err
		}
		defer p.worlds[on].Close()
		wg.Go(func() { errs[i] = p.transport(ctx, mine, lanes, on) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// transport tries the points of one transport in lanes beside each other.
func (p *plan) transport(ctx context.Context, order []point, lanes int, on servers) error {
	todo := make(chan point, len(order))
	for _, at := range order {
		todo <- at
	}
	close(todo)
	var wg sync.WaitGroup
	errs := make([]error, min(lanes, len(order)))
	for i := range errs {
		wg.Go(func() { errs[i] = p.work(ctx, todo, on) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// work is one lane: it tries points until none is left. After a failure it goes on in a new world.
func (p *plan) work(ctx context.Context, todo <-chan point, on servers) error {
	var l *lane
	defer func() {
		if l != nil {
			l.Close()
		}
	}()
	for at := range todo {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if l == nil {
			var err error
			if l, err = p.newLane(ctx, on); err != nil {
				return err
			}
		}
		if !p.report(ctx, l, at) {
			l.Close()
			l = nil
		}
	}
	if l == nil {
		return nil
	}
	report, err := l.end(ctx)
	if err != nil {
		return fmt.Errorf("at the end of %s (seed %d): %w", l.Dir, p.Seed, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range report {
		p.judged[r.Rule] += r.Judged
	}
	return nil
}

// rules must have judged at least one event in a whole run.
var rules = []string{
	"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I11", "I12", "I14", "I15", "I17", "I18", "I20", "I23", "I24", "I25", "I26", "I27", "I28",
	"I29", "I30", "I34", "I36", "I37", "I43", "I44", "L1", "L4", "L5",
}

// idle are those that did not.
func (p *plan) idle() []string {
	return slices.DeleteFunc(slices.Clone(rules), func(id string) bool { return p.judged[id] > 0 })
}

// words say how many events each rule judged.
func (p *plan) words() string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(p.judged)) {
		parts = append(parts, fmt.Sprintf("%s %d", id, p.judged[id]))
	}
	return "events judged: " + strings.Join(parts, " · ")
}

// report tries one point within its limit and prints its line.
func (p *plan) report(ctx context.Context, l *lane, at point) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, trialLimit, fmt.Errorf("the point took longer than %s", trialLimit))
	defer cancel()
	started := time.Now()
	t := &trial{lane: l, at: at, kind: p.kind, scene: scenes[at.name]}
	err := t.run(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.hit {
		p.hit++
	}
	if err != nil {
		p.bad++
	}
	return verb.Result{Name: at.name, Took: time.Since(started), Seed: p.Seed, At: p.kind + ", " + at.place, Err: err, Logs: l.Dir}.Print(p.out)
}
