// Package fullload breaks things under a thousand tasks a second and more, with members in processes of their own.
package fullload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	// fullRate is the least rate at which a kill proves something, tasks a second.
	fullRate = 1000
	fullWait = 90 * time.Second // for that rate after a kill: a lease, a session of Kafka, a broker's start on two busy cores
	// fullMost bounds the rate of the submits: the checker reads each task's log in the end.
	fullMost    = 3000
	fullBacklog = 10_000 // tasks that wait or run at any moment
	fullBatch   = 500
	fullLease   = 5 * time.Second
	fullCrashes = 1000
	fullSettle  = 2 * time.Minute
)

// full is a full load under way.
type full struct {
	*stage.Cluster
	At      transport
	db      *taskstore.Store // of the submits
	publish func(ctx context.Context, tasks []taskstate.Task)
	sent    atomic.Int64 // tasks accepted
	starts  int
	Kills   map[string]int
	away    time.Duration // the broker's absences
	slow    time.Duration // from kills, and from the broker's start, to seconds of fullRate: all of them together
	took    time.Duration // from the first kill to the last such second
}

// Run keeps a backlog of tasks in front of two workers and a reclaimer in processes of their own, kills them and the
// broker by turns, and judges every task. It fails when a kill would meet less than fullRate, or no task was taken over.
func Run(ctx context.Context, s *stage.Stage) (string, error) {
	turn := []string{"worker", "reclaimer", "worker", "broker"}
	names := []string{"worker", "worker", "reclaimer"}
	if s.Kafka {
		turn = []string{"worker", "outbox-relay", "reclaimer", "worker", "outbox-relay", "broker"}
		names = append(names, "outbox-relay", "outbox-relay")
	}
	c, err := s.NewCluster(ctx, world.Options{Env: []string{
		fmt.Sprintf("INGEST_LEASE_MS=%d", fullLease.Milliseconds()), fmt.Sprintf("INGEST_MAX_CRASHES=%d", fullCrashes),
	}})
	if err != nil {
		return "", err
	}
	defer c.Close()
	f := &full{Cluster: c, Kills: map[string]int{}}
	if err := f.open(ctx); err != nil {
		return "", err
	}
	defer f.db.Close() //nolint:errcheck // every commit was answered
	for _, name := range names {
		if err := f.start(name); err != nil {
			return "", err
		}
	}
	stop := await.Beside(ctx, f.submit)
	lowest, mean, err := f.killByTurns(ctx, s, turn)
	if err := errors.Join(err, stop()); err != nil {
		return "", err
	}
	taken, err := f.rest(ctx)
	if err != nil {
		return "", err
	}
	consumer := "stream-worker"
	if s.Kafka {
		consumer = "kafka-consumer"
	}
	if err := f.Documents(ctx, "ingest-api", consumer, "reclaimer"); err != nil {
		return "", err
	}
	if taken == 0 {
		return "", fmt.Errorf("kills %v met no task at work", f.Kills)
	}
	return fmt.Sprintf("%.0f tasks/s or more right before each kill (at least %d are asked for), %.0f in the mean of the %.0f s while the broker was there, of which %.0f s went by until that rate was back; kills %v, %d takeovers; %d tasks accepted, each succeeded",
		lowest, fullRate, mean, (f.took - f.away).Seconds(), f.slow.Seconds(), f.Kills, taken, f.sent.Load()), nil
}

// open opens what the submits need.
func (f *full) open(ctx context.Context) (err error) {
	f.At = transport{sql: f.SQL.URL("")}
	if f.Kafka != nil {
		f.At.kafka, f.At.topic = f.Kafka.Addr, f.Topic()
		f.publish = func(context.Context, []taskstate.Task) {} // its event is committed with each task
	} else {
		f.At.redis = f.Redis.URL("")
		client, err := redisclient.New(f.At.redis)
		if err != nil {
			return err
		}
		q := redisq.NewPublisher(client, redisq.NewDefaultConfig(f.At.redis), slog.New(slog.DiscardHandler), time.Now, nil)
		f.publish = func(ctx context.Context, tasks []taskstate.Task) {
			_ = taskrun.Publish(ctx, q, tasks) // while Redis is away the row is the promise
		}
		context.AfterFunc(ctx, client.Close)
	}
	f.db, err = f.At.open(ctx)
	return err
}

// start starts one more process of a kind.
func (f *full) start(name string) error {
	if name == "outbox-relay" {
		_, err := f.Add(name)
		return err
	}
	f.starts++
	p, err := f.StartSelf(name, f.At.args(name, fmt.Sprintf("%s-%d", name, f.starts))...)
	if err != nil {
		return err
	}
	f.Adopt(p)
	return nil
}

// submit accepts tasks so that fullBacklog of them have not ended, until ctx ends.
func (f *full) submit(ctx context.Context) error {
	began := time.Now()
	for ctx.Err() == nil {
		ended, err := f.ended(context.WithoutCancel(ctx)) // its end is no error
		if err != nil {
			return err
		}
		most := min(ended+fullBacklog, int64(time.Since(began).Seconds()*fullMost)+fullBacklog)
		for f.sent.Load()+fullBatch <= most && ctx.Err() == nil {
			if err := f.submitOne(context.WithoutCancel(ctx)); err != nil { // its outcome is to be known
				return err
			}
		}
		await.Pause(ctx, 50*time.Millisecond)
	}
	return nil
}

// submitOne accepts one batch.
func (f *full) submitOne(ctx context.Context) error {
	first := int(f.sent.Load())
	news := make([]taskstate.NewTask, fullBatch)
	for i := range news {
		news[i] = world.NewNoop(first + i)
	}
	tasks, err := f.db.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return news, nil })
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	f.sent.Add(int64(len(tasks)))
	f.publish(ctx, tasks)
	return nil
}

// ended is how many tasks have succeeded; nothing else ends them.
func (f *full) ended(ctx context.Context) (int64, error) {
	counts, err := tables.CountStatus(ctx, f.DB.Reader())
	return int64(counts[taskstate.StatusSucceeded]), err
}

// killByTurns kills one process of each kind of the turn and the broker, again and again while the load lasts and at least
// once each. Each kill comes when fullRate tasks ended in the second before it, and the last is followed by such a second.
// It returns the lowest rate right before a kill and the mean while the broker was there.
func (f *full) killByTurns(ctx context.Context, s *stage.Stage, turn []string) (lowest, mean float64, err error) {
	if lowest, err = f.fullSecond(ctx); err != nil {
		return 0, 0, fmt.Errorf("before the first kill: %w", err)
	}
	before, err := f.ended(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for round := 0; round < len(turn) || time.Since(began) < s.Load; round++ {
		victim := turn[round%len(turn)]
		if err := f.Kill(ctx, s, victim); err != nil {
			return 0, 0, err
		}
		killed := time.Now()
		rate, err := f.fullSecond(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("after kill %d, of a %s: %w", round+1, victim, err)
		}
		f.slow += time.Since(killed) - time.Second
		lowest = min(lowest, rate)
	}
	after, err := f.ended(ctx)
	f.took = time.Since(began)
	return lowest, float64(after-before) / (f.took - f.away).Seconds(), err
}

// fullSecond waits for a second in which fullRate tasks end and returns how many did.
func (f *full) fullSecond(ctx context.Context) (rate float64, err error) {
	err = await.Until(ctx, fullWait, time.Millisecond, func(ctx context.Context) error {
		began := time.Now()
		before, err := f.ended(ctx)
		if err != nil {
			return err
		}
		await.Pause(ctx, time.Second)
		after, err := f.ended(ctx)
		rate = float64(after-before) / time.Since(began).Seconds()
		if err == nil && rate < fullRate {
			err = fmt.Errorf("too little load to prove anything: %.0f tasks ended in a second, at least %d are asked for", rate, fullRate)
		}
		return err
	})
	return rate, err
}

// Kill kills one process of a kind and starts another, or the broker and starts it again.
func (f *full) Kill(ctx context.Context, s *stage.Stage, name string) error {
	f.Kills[name]++
	if name == "broker" {
		began := time.Now()
		err := stage.RestartBroker(ctx, f.Cluster)
		f.away += time.Since(began)
		return err
	}
	victim := s.One(f.Cluster, name)
	victim.Kill()
	f.Drop(victim)
	return f.start(name)
}

// rest waits until all that was accepted has succeeded and ends the members; it returns how many takeovers there were.
func (f *full) rest(ctx context.Context) (taken int, err error) {
	if err := f.Audit(nil, nil).Rest(ctx, fullSettle); err != nil {
		return 0, err
	}
	n, err := f.ended(ctx)
	if err == nil && n != f.sent.Load() {
		err = fmt.Errorf("%d tasks were accepted and %d succeeded", f.sent.Load(), n)
	}
	if err != nil {
		return 0, err
	}
	if err := f.AllRun(); err != nil {
		return 0, err
	}
	for _, name := range []string{"worker", "reclaimer"} {
		for _, p := range f.Of(name) {
			f.Drop(p)
			if code, err := p.Stop(ctx, stage.StopLimit); err != nil || code != 0 {
				return 0, fmt.Errorf("exit code of %s after SIGTERM: %d, %w; end of %s:\n%s", p.Name, code, err, p.Log, p.Tail(12))
			}
		}
	}
	err = f.DB.Reader().QueryRowContext(ctx, `SELECT COUNT(*) FROM ingest_task_transition WHERE reason = ?`, string(taskstate.ReasonTakeover)).Scan(&taken)
	return taken, err
}
