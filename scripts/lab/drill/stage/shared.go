package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

// EmbedTime is how long the embedding service takes, so that most kills meet tasks in the middle of their work.
const EmbedTime = 150 * time.Millisecond

// Patient are settings under which crashes alone never end a task, and takeovers come soon.
var Patient = []string{"INGEST_MAX_CRASHES=1000", "INGEST_LEASE_MS=2000"}

// KillAtRandom kills a process of one of the services, a name as often as it stands there, and starts another in its place, again
// and again while the load lasts; between two kills it waits least ms and up to more ms longer. It returns how many it killed.
func (s *Stage) KillAtRandom(ctx context.Context, c *Cluster, least, more int, names ...string) (kills int, err error) {
	for end := time.Now().Add(s.Load); time.Now().Before(end) && ctx.Err() == nil; kills++ {
		await.Pause(ctx, time.Duration(least+s.Random.IntN(more))*time.Millisecond)
		name := names[s.Random.IntN(len(names))]
		running := c.Of(name)
		victim := running[s.Random.IntN(len(running))]
		victim.Kill()
		c.Drop(victim)
		if _, err := c.Add(name); err != nil {
			return kills, err
		}
	}
	return kills, nil
}

// Retrying are settings under which failures alone never end a task, and retries come soon.
var Retrying = []string{"INGEST_REDIS_MAX_ATTEMPTS=1000", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=200", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=1000"}

// AwaitWork waits a little until a process holds a task: a pause that finds none proves nothing.
func AwaitWork(ctx context.Context, c *Cluster, p *proc.Proc) {
	_ = await.Until(ctx, PauseTime, 5*time.Millisecond, func(ctx context.Context) error {
		held, err := tables.Running(ctx, c.DB.Reader())
		if err == nil && !slices.ContainsFunc(held, func(h tables.Held) bool { return p.Owns(h.Owner) }) {
			err = fmt.Errorf("%s holds nothing", p.Name)
		}
		return err
	}) // in vain is no fault: the next round tries again
}

// pauseTries is how often a pause is tried that met no task: it ended between the look and the signal.
const pauseTries = 20

// PauseAtWork pauses a process while it holds a task. Where it held none all the time it is paused all the same.
func PauseAtWork(ctx context.Context, c *Cluster, p *proc.Proc) error {
	for range pauseTries {
		AwaitWork(ctx, c, p)
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		held, err := tables.Running(ctx, c.DB.Reader())
		if err != nil || slices.ContainsFunc(held, func(h tables.Held) bool { return p.Owns(h.Owner) }) {
			return err
		}
		if err := p.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	return p.Signal(syscall.SIGSTOP)
}

// Takeovers counts them in all logs.
func Takeovers(ctx context.Context, db taskstate.Tx) (int, error) {
	logs, err := tables.Logs(ctx, db)
	n := 0
	for _, log := range logs {
		for _, t := range log {
			if t.Reason == taskstate.ReasonTakeover {
				n++
			}
		}
	}
	return n, err
}

// Uncounted is an error that names the tasks which count an attempt or a crash, for what is nobody's failure.
func Uncounted(ctx context.Context, c *Cluster, what string) error {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	var counted []string
	for id, log := range logs {
		if last := log[len(log)-1]; last.AttemptCount > 0 || last.CrashCount > 0 {
			counted = append(counted, fmt.Sprintf("task %s:\n%s", id, tables.Chain(log)))
		}
	}
	if len(counted) > 0 {
		return fmt.Errorf("%d tasks count an attempt or a crash for %s:\n%s", len(counted), what, strings.Join(counted, ""))
	}
	return err
}

// All lists every process that should be running.
func (c *Cluster) All() []*proc.Proc { return c.Of("") }

// Unfinished counts tasks that have not ended.
func Unfinished(ctx context.Context, c *Cluster) (int, error) {
	counts, err := tables.CountStatus(ctx, c.DB.Reader())
	n := 0
	for status, k := range counts {
		if !status.Terminal() {
			n += k
		}
	}
	return n, err
}

// Documents starts services and lets them work on documents behind all that was there before; then it judges.
func (c *Cluster) Documents(ctx context.Context, services ...string) error {
	for _, name := range services {
		if _, err := c.Add(name); err != nil {
			return err
		}
	}
	if err := c.AllReady(ctx, LiveLimit); err != nil {
		return err
	}
	return c.Finish(ctx, apiclient.Load{Target: c.Client, Clients: 2, Count: 2 * echoes, Bytes: DocBytes}.Run(ctx))
}

// Finish waits until the outbox is empty and all has ended, runs the echo and judges.
func (c *Cluster) Finish(ctx context.Context, load *apiclient.Record) error {
	if err := c.AllReady(ctx, LiveLimit); err != nil {
		return err
	}
	if err := c.OutboxSent(ctx, DrainLimit); err != nil {
		return err
	}
	if err := c.Audit(load, nil).Rest(ctx, SettleLimit); err != nil {
		return err
	}
	if err := c.Echo(ctx, load); err != nil {
		return err
	}
	return c.Verify(ctx, load, nil)
}

// Costs sums what all tasks counted in the end.
func Costs(ctx context.Context, c *Cluster) (attempts, crashes int, err error) {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	for _, log := range logs {
		last := log[len(log)-1]
		attempts, crashes = attempts+last.AttemptCount, crashes+last.CrashCount
	}
	return attempts, crashes, err
}

// RestartBroker kills Redis or Kafka and starts it again on its data.
func RestartBroker(ctx context.Context, c *Cluster) error {
	broker := c.Redis
	if c.Kafka != nil {
		broker = c.Kafka
	}
	if err := broker.Kill(ctx); err != nil {
		return err
	}
	return broker.Restart(ctx)
}

// PauseTime is longer than the leases of patient, the slack of promises (2 s), and a sweep.
const PauseTime = 5 * time.Second

const DrainLimit = 60 * time.Second // for the outbox to be empty after the last fault

const StopLimit = 30 * time.Second

// Turn is how an installation works for a part of the load.
type Turn struct {
	Name          string // for errors
	Services, Env []string
	Begin         func() // nil: nothing
}

// Switch lets an installation work in one way after the other, under load. At each switch all is killed with tasks in flight;
// it returns how many there were at the last one, and the whole load.
func (s *Stage) Switch(ctx context.Context, c *Cluster, clients int, turns ...Turn) (left int, total *apiclient.Record, err error) {
	api := world.FreeAddr()
	total = &apiclient.Record{Accepted: map[string]apiclient.Doc{}, Other: map[int]int{}}
	for i, turn := range turns {
		if i > 0 {
			if left, err = Unfinished(ctx, c); err != nil || left == 0 {
				return 0, nil, fmt.Errorf("%d tasks are left on %s (%w): the switch met no work", left, turns[i-1].Name, err)
			}
		}
		if turn.Begin != nil {
			turn.Begin()
		}
		for _, old := range c.All() {
			old.Kill()
			c.Drop(old)
		}
		for _, name := range turn.Services {
			if _, err := c.Add(name, append([]string{"HTTP_ADDR=" + api}, turn.Env...)...); err != nil {
				return 0, nil, err
			}
		}
		if err := c.AllReady(ctx, LiveLimit); err != nil {
			return 0, nil, fmt.Errorf("on %s: %w", turn.Name, err)
		}
		c.Client = apiclient.NewClient("http://" + api)
		stop := Background(ctx, apiclient.Load{Target: c.Client, Clients: clients, First: (i + 1) * 100_000, Bytes: DocBytes, Every: 200 * time.Millisecond})
		await.Pause(ctx, s.Load/time.Duration(len(turns)))
		total.Add(stop())
	}
	return left, total, nil
}

// Undisturbed is an error when a load met refusals or broken requests: uploads depend on no broker.
func Undisturbed(load *apiclient.Record) error {
	if load.Busy+load.Unknown > 0 {
		return fmt.Errorf("uploads depend on the broker: %d got 503, %d broke off", load.Busy, load.Unknown)
	}
	return nil
}

// orphan is a task whose holder was killed.
type orphan struct {
	Task  string
	Fence int64
	At    time.Time
}

// Mourning notes whom kills left behind.
type Mourning struct {
	Kills   int
	Orphans []orphan
}

// Kill ends a process that may hold tasks, and notes them.
func (m *Mourning) Kill(ctx context.Context, c *Cluster, victims ...*proc.Proc) error {
	held, err := tables.Running(ctx, c.DB.Reader())
	if err != nil {
		return err
	}
	for _, p := range victims {
		at := time.Now()
		p.Kill()
		c.Drop(p)
		m.Kills++
		for _, h := range held {
			if p.Owns(h.Owner) {
				m.Orphans = append(m.Orphans, orphan{Task: h.TaskID, Fence: h.Fence, At: at})
			}
		}
	}
	return nil
}

// TakenOver looks up how soon each orphan ran again; those that had ended before the kill count for nothing.
func (m *Mourning) TakenOver(ctx context.Context, c *Cluster) (n int, slowest time.Duration, err error) {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return 0, 0, err
	}
	for _, o := range m.Orphans {
		for _, t := range logs[o.Task] {
			if t.Fence == o.Fence+1 && t.From == "RUNNING" && t.To == "RUNNING" {
				n++
				slowest = max(slowest, t.CreatedAt.Sub(o.At))
			}
		}
	}
	return n, slowest, nil
}

// Within words the takeovers, an error when they came too late or there was none.
func (m *Mourning) Within(ctx context.Context, c *Cluster, goal time.Duration) (string, error) {
	n, slowest, err := m.TakenOver(ctx, c)
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", fmt.Errorf("%d kills met no task at work", m.Kills)
	case slowest > goal:
		return "", fmt.Errorf("a killed holder's task ran again after %.1f s, the goal is %.1f s (lease + 2 s)", slowest.Seconds(), goal.Seconds())
	}
	return fmt.Sprintf("%d kills, %d tasks of the killed ran again within %.1f s (goal %.1f s)", m.Kills, n, slowest.Seconds(), goal.Seconds()), nil
}
