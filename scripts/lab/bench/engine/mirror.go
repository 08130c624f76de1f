package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	mirrorRounds  = 3
	besideRounds  = 5      // of what a busy moment of the machine changes most
	mirroredTasks = 20_000 // copied, rotated, given deliveries, restored
	backlogTasks  = 10_000 // drained with the mirror and without
	singleCopies  = 1_000  // published one by one
	rivalMessages = 5_000
	rivalChannels = 16 // of watermill-amqp, which waits for a confirm on each
	copyLimit     = 2 * time.Minute
)

// mirrorBench is a world with a broker for copies, and a rig on its servers.
type mirrorBench struct {
	w      *world.World
	rig    *rig
	broker *broker
	peers  string // the program of scripts/peers, where it is built
}

// Mirror measures copies in RabbitMQ beside the broker alone, and what they cost tasks that run, in one run.
func Mirror(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, _, _, err := figure.NewWorld(ctx, b, world.Options{Name: "mirror", RabbitMQ: true})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	m := &mirrorBench{w: w, peers: filepath.Join(b.Root, ".run", "bin", "peers")}
	if m.rig, err = newRig(ctx, Servers{SQL: w.SQL, Redis: w.Redis}); err != nil {
		return nil, err
	}
	defer m.rig.close()
	if m.broker, err = openBroker(w.Rabbit.URL("")); err != nil {
		return nil, err
	}
	defer m.broker.close()
	var out []figure.Figure
	for _, part := range []func(context.Context) ([]figure.Figure, error){m.beside, m.counted, m.lag, m.published, m.rotated, m.rehydrated, m.restored} {
		figures, err := part(ctx)
		if out = append(out, figures...); err != nil {
			return out, err
		}
	}
	return out, nil
}

// on runs f with a stream-mirror beside it, in a process of its own.
func (m *mirrorBench) on(ctx context.Context, f func() error) error {
	p, err := m.w.StartReady(ctx, "stream-mirror")
	if err != nil {
		return err
	}
	err = f()
	_, stopErr := p.Stop(ctx, figure.StartLimit)
	return errors.Join(err, stopErr)
}

// copied waits until so many copies are in the queue; a few more where a confirm came late: those were published again.
func (m *mirrorBench) copied(ctx context.Context, n int) error {
	return await.Until(ctx, copyLimit, 2*time.Millisecond, func(context.Context) error {
		got, err := m.broker.length(m.broker.cfg.Queue)
		if err == nil && (got < n || n == 0 && got > 0) {
			err = fmt.Errorf("%d copies, not %d", got, n)
		}
		return err
	})
}

// side is one round with the mirror, or without.
type side struct{ p50, p99, drain float64 }

// beside compares tasks with the mirror and without, by turns.
func (m *mirrorBench) beside(ctx context.Context) ([]figure.Figure, error) {
	var p50, p99, drains []float64
	for range besideRounds {
		off, err := m.side(ctx, func() error { return nil })
		var on side
		if err == nil {
			err = m.on(ctx, func() (err error) {
				if on, err = m.side(ctx, func() error { return m.copied(ctx, backlogTasks) }); err != nil {
					return err
				}
				return m.copied(ctx, 0)
			})
		}
		if err != nil {
			return nil, fmt.Errorf("with the mirror and without: %w", err)
		}
		p50, p99, drains = append(p50, on.p50/off.p50), append(p99, on.p99/off.p99), append(drains, on.drain/off.drain)
	}
	return []figure.Figure{
		{Name: fmt.Sprintf("commit → handler at %d/s, p50, with the mirror ÷ without", noopRate), Measured: figure.Median(p50), Unit: "×", Asked: 1.1, Relation: "≤", Note: rounds(p50)},
		{Name: fmt.Sprintf("commit → handler at %d/s, p99, with the mirror ÷ without", noopRate), Measured: figure.Median(p99), Unit: "×", Asked: 1.1, Relation: "≤", Note: rounds(p99)},
		{Name: "drain of a copied backlog, with the mirror ÷ without", Measured: figure.Median(drains), Unit: "×", Asked: 0.95, Relation: "≥", Note: rounds(drains)},
	}, nil
}

// rounds are the figures of all rounds, for a note.
func rounds(all []float64) string { return fmt.Sprintf("rounds: %.3g", all) }

// side measures one round; ready waits until a backlog may be drained.
func (m *mirrorBench) side(ctx context.Context, ready func() error) (s side, err error) {
	figures, err := m.rig.latencies(ctx)
	if err != nil {
		return s, err
	}
	s.p50, s.p99 = figures[0].Measured, figures[1].Measured
	if err := m.rig.submitBulk(ctx, backlogTasks, bulk, bulkCallers); err != nil {
		return s, err
	}
	if err := ready(); err != nil {
		return s, err
	}
	took, err := m.rig.drain(ctx, backlogTasks, wideSlots)
	s.drain = PerSecond(backlogTasks, took)
	return s, err
}

// countedDB is a database that counts what the mirror asks of it.
type countedDB struct {
	*taskstore.Store
	statements atomic.Int64
}

func (c *countedDB) Reader() taskstate.Tx { return countedTx{c.Store.Reader(), c} }

func (c *countedDB) GetMany(ctx context.Context, scope taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	c.statements.Add(1)
	return c.Store.GetMany(ctx, scope, ids)
}

type countedTx struct {
	taskstate.Tx
	c *countedDB
}

func (t countedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.c.statements.Add(1)
	return t.Tx.QueryContext(ctx, query, args...)
}

// counted is how many statements the mirror adds to a task.
func (m *mirrorBench) counted(ctx context.Context) ([]figure.Figure, error) {
	db := &countedDB{Store: m.rig.db}
	stop, err := m.start(ctx, db)
	if err != nil {
		return nil, err
	}
	before := db.statements.Load()
	_, err = m.rig.latencies(ctx)
	n := float64(noopWarm + noopRate*noopSeconds)
	perTask := float64(db.statements.Load()-before) / n
	if err := errors.Join(err, stop()); err != nil {
		return nil, fmt.Errorf("statements: %w", err)
	}
	return []figure.Figure{{
		Name: fmt.Sprintf("SQL statements a task more with the mirror, at %d/s", noopRate), Measured: perTask, Asked: 0.02, Relation: "≤",
		Note: "counted in the mirror: of batches that vary the servers' counters do not tell it",
	}}, nil
}

// lag is how long after its commit each of the tasks of an open loop is copied.
func (m *mirrorBench) lag(ctx context.Context) ([]figure.Figure, error) {
	tasks := make([]moments, noopWarm+noopRate*noopSeconds)
	var lags []time.Duration
	var bytes int
	err := m.on(ctx, func() error {
		seen, err := m.broker.tap(ctx, len(tasks))
		if err == nil {
			err = m.rig.openLoop(ctx, tasks)
		}
		if err != nil {
			return err
		}
		times, size, err := seen(ctx)
		bytes = size
		for i := range tasks[noopWarm:] {
			t := &tasks[noopWarm+i]
			lags = append(lags, times[t.task.ID].Sub(t.committed))
		}
		if err == nil {
			_, err = m.rig.drain(ctx, len(tasks), wideSlots)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lag: %w", err)
	}
	note := fmt.Sprintf("%d/s for %d s, nobody runs them; until the broker has passed the copy on, %d bytes each", noopRate, noopSeconds, bytes)
	return []figure.Figure{
		{Name: fmt.Sprintf("commit → copy at %d/s, p50", noopRate), Measured: figure.Ms(figure.Percentile(lags, 50)), Unit: "ms", Note: note},
		{Name: fmt.Sprintf("commit → copy at %d/s, p99", noopRate), Measured: figure.Ms(figure.Percentile(lags, 99)), Unit: "ms", Asked: 300, Relation: "≤"},
	}, nil
}

// mirror is one in this process.
func (m *mirrorBench) mirror(db taskstate.Database) (*mirror.Mirror, error) {
	return mirror.New(m.broker.cfg, mirror.Deps{DB: db, Name: "bench", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
}

// start runs a mirror in this process, and returns when it acts.
func (m *mirrorBench) start(ctx context.Context, db taskstate.Database) (stop func() error, err error) {
	one, err := m.mirror(db)
	if err != nil {
		return nil, err
	}
	stop = await.Beside(ctx, one.Run)
	err = await.Until(ctx, figure.StartLimit, time.Millisecond, func(context.Context) error {
		_, err := one.Health()
		return err
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// purge takes all copies away.
func (m *mirrorBench) purge() error {
	_, err := m.broker.ch.QueuePurge(m.broker.cfg.Queue, false)
	return err
}

// published compares the mirror's publisher with the broker alone. It leaves copies of mirroredTasks.
func (m *mirrorBench) published(ctx context.Context) ([]figure.Figure, error) {
	var pipelined, batched, singly, fresh, lost, piped, alone, rival []float64
	for n := range mirrorRounds {
		for _, raw := range []struct {
			to        *[]float64
			n, atOnce int
		}{{&pipelined, mirroredTasks, mirroredTasks}, {&batched, mirroredTasks, rawBatch}, {&singly, singleCopies, 1}} {
			took, err := m.broker.publish(ctx, raw.n, raw.atOnce)
			if err != nil {
				return nil, err
			}
			*raw.to = append(*raw.to, PerSecond(raw.n, took))
		}
		other, err := m.watermill(ctx)
		if err != nil {
			return nil, fmt.Errorf("watermill-amqp: %w", err)
		}
		if n > 0 {
			if _, err := m.rig.drain(ctx, mirroredTasks, wideSlots); err != nil {
				return nil, err
			}
		}
		took, err := m.copyNew(ctx)
		if err != nil {
			return nil, fmt.Errorf("copies of new tasks: %w", err)
		}
		again, err := m.copyAll(ctx, func() error { return nil })
		if err != nil {
			return nil, fmt.Errorf("copies after a loss: %w", err)
		}
		fresh, lost = append(fresh, PerSecond(mirroredTasks, took)), append(lost, PerSecond(mirroredTasks, again))
		piped, alone = append(piped, fresh[n]/pipelined[n]), append(alone, fresh[n]/singly[n])
		if other > 0 {
			rival = append(rival, fresh[n]/other)
		}
	}
	out := []figure.Figure{
		{Name: "broker alone, pipelined", Measured: figure.Median(pipelined), Unit: "/s", Note: fmt.Sprintf("%d B, quorum queue, confirms; %s", rawBytes, rounds(pipelined))},
		{Name: fmt.Sprintf("broker alone, %d at a time, as the mirror", rawBatch), Measured: figure.Median(batched), Unit: "/s", Note: rounds(batched)},
		{Name: "broker alone, one by one", Measured: figure.Median(singly), Unit: "/s", Note: rounds(singly)},
		{Name: "copies of new tasks", Measured: figure.Median(fresh), Unit: "/s", Note: fmt.Sprintf("%d of one commit, rows read; %s", mirroredTasks, rounds(fresh))},
		{Name: "copies of new tasks ÷ broker alone, pipelined", Measured: figure.Median(piped), Unit: "×", Asked: 0.7, Relation: "≥", Note: rounds(piped)},
		{Name: "copies of new tasks ÷ broker alone, one by one", Measured: figure.Median(alone), Unit: "×", Asked: 8, Relation: "≥", Note: rounds(alone)},
		{Name: "copies after all were lost", Measured: figure.Median(lost), Unit: "/s", Note: "all tasks are looked for at 2 % of a core; " + rounds(lost)},
	}
	if len(rival) > 0 {
		out = append(out, figure.Figure{
			Name: "copies of new tasks ÷ watermill-amqp with confirms", Measured: figure.Median(rival), Unit: "×", Asked: 2, Relation: "≥",
			Note: fmt.Sprintf("%d of its channels at a time; %s", rivalChannels, rounds(rival)),
		})
	}
	return out, nil
}

// copyNew lets a mirror that acts copy tasks that one commit has made.
func (m *mirrorBench) copyNew(ctx context.Context) (took time.Duration, err error) {
	news := make([]taskstate.NewTask, mirroredTasks)
	for i := range news {
		news[i] = world.NewNoop(i)
	}
	var tasks []taskstate.Task
	took, err = m.copyAll(ctx, func() (err error) {
		tasks, err = m.rig.accept(ctx, news)
		return err
	})
	return took, errors.Join(err, m.rig.transport.publish(ctx, tasks))
}

// watermill is how many messages a second watermill-amqp publishes; 0: its program is not built (make .run/bin/peers).
func (m *mirrorBench) watermill(ctx context.Context) (float64, error) {
	if _, err := os.Stat(m.peers); err != nil {
		return 0, nil //nolint:nilerr // the figure is left out
	}
	cmd := exec.CommandContext(ctx, m.peers, "publish-amqp", m.w.Rabbit.URL(""), strconv.Itoa(rivalMessages), strconv.Itoa(rivalChannels))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return rivalMessages / seconds, err
}

// copyAll lets a mirror fill the empty queue with copies of mirroredTasks, which are made when it acts, or before. It counts from then on.
func (m *mirrorBench) copyAll(ctx context.Context, submit func() error) (time.Duration, error) {
	if err := m.purge(); err != nil {
		return 0, err
	}
	stop, err := m.start(ctx, m.rig.db)
	if err != nil {
		return 0, err
	}
	err = submit()
	began := time.Now()
	if err == nil {
		err = m.copied(ctx, mirroredTasks)
	}
	took := time.Since(began)
	return took, errors.Join(err, stop())
}

// rotated compares a round over all copies with the broker alone.
func (m *mirrorBench) rotated(ctx context.Context) ([]figure.Figure, error) {
	var raws, fews, ours, ratios []float64
	for range mirrorRounds {
		raw, err := m.broker.rotate(ctx, mirroredTasks, rawBatch)
		if err != nil {
			return nil, err
		}
		few, err := m.broker.rotate(ctx, mirroredTasks, m.broker.cfg.Prefetch)
		if err != nil {
			return nil, err
		}
		one, err := m.mirror(m.rig.db)
		if err != nil {
			return nil, err
		}
		met, began, last := map[string]bool{}, time.Now(), time.Time{}
		err = one.Visit(ctx, mirror.Visit{Look: true, Each: func(_ context.Context, copies []mirror.Copy) error {
			for _, c := range copies {
				if !met[c.Task.ID] {
					met[c.Task.ID], last = true, time.Now()
				}
			}
			return nil
		}})
		if err != nil || len(met) != mirroredTasks {
			return nil, fmt.Errorf("rotate: %d of %d met: %w", len(met), mirroredTasks, err)
		}
		took := last.Sub(began)
		raws, fews = append(raws, PerSecond(mirroredTasks, raw)), append(fews, PerSecond(mirroredTasks, few))
		ours, ratios = append(ours, PerSecond(mirroredTasks, took)), append(ratios, raw.Seconds()/took.Seconds())
	}
	return []figure.Figure{
		{Name: fmt.Sprintf("broker alone, rotated, %d taken at once", rawBatch), Measured: figure.Median(raws), Unit: "/s", Note: rounds(raws)},
		{Name: fmt.Sprintf("broker alone, rotated, %d taken at once", m.broker.cfg.Prefetch), Measured: figure.Median(fews), Unit: "/s", Note: rounds(fews)},
		{Name: "copies rotated by a visit", Measured: figure.Median(ours), Unit: "/s", Note: fmt.Sprintf("each row read, %d taken at once; the mirror that acts goes at most 1,000/s", m.broker.cfg.Prefetch)},
		{Name: fmt.Sprintf("copies rotated ÷ broker alone, %d at once", rawBatch), Measured: figure.Median(ratios), Unit: "×", Asked: 0.7, Relation: "≥", Note: rounds(ratios)},
	}, nil
}

// rehydrated gives every task a delivery.
func (m *mirrorBench) rehydrated(ctx context.Context) ([]figure.Figure, error) {
	return m.rehydrator(ctx, "deliveries given by the rehydrator")
}

// restored makes the rows of a lost database again.
func (m *mirrorBench) restored(ctx context.Context) ([]figure.Figure, error) {
	m.rig.close()
	m.rig.ends = nil
	if err := m.w.LoseDatabase(ctx); err != nil {
		return nil, err
	}
	return m.rehydrator(ctx, "rows restored by the rehydrator", "--restore")
}

// rehydrator runs the command once over all copies.
func (m *mirrorBench) rehydrator(ctx context.Context, name string, more ...string) ([]figure.Figure, error) {
	began := time.Now()
	p, err := m.w.Rehydrate(append([]string{"--mode", "rehydrate", "--once"}, more...))
	if err != nil {
		return nil, err
	}
	code, err := p.Wait(ctx)
	if err != nil || code != 0 {
		return nil, fmt.Errorf("rehydrator: exit code %d, %w; end of %s:\n%s", code, err, p.Log, p.Tail(12))
	}
	return []figure.Figure{{
		Name: name, Measured: PerSecond(mirroredTasks, time.Since(began)), Unit: "/s", Asked: 3000, Relation: "≥",
		Note: fmt.Sprintf("%d tasks that are no documents, from the start of the process to its end", mirroredTasks),
	}}, nil
}
