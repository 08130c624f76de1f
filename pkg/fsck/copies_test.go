package fsck_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
)

// mirrored is a world whose tasks have copies in RabbitMQ.
type mirrored struct {
	*world
	cfg  mirror.Config
	conn *amqp.Connection // of the test itself
}

func newMirrored(t *testing.T, w *world) *mirrored {
	t.Helper()
	server := labserver.RabbitMQ(t)
	m := &mirrored{world: w, cfg: mirror.NewDefaultConfig(server.URL(""))}
	own := "f" + strings.ToLower(rand.Text()[:8]) + "."
	m.cfg.Exchange, m.cfg.Queue, m.cfg.RoutingKey, m.cfg.DLX = own+"durable", own+"quorum", own+"key", own+"dlx"
	var err error
	m.conn, err = amqp.Dial(server.URL(""))
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.conn.Close() })
	w.options.Rest, w.options.Patience = false, 200*time.Millisecond
	return m
}

func (m *mirrored) mirror() *mirror.Mirror {
	out, err := mirror.New(m.cfg, mirror.Deps{DB: m.store, Name: "fsck", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	require.NoError(m.t, err)
	return out
}

// run mirrors until stop is called.
func (m *mirrored) run() (stop func()) {
	ctx, cancel := context.WithCancel(m.t.Context())
	done, one := make(chan error, 1), m.mirror()
	go func() { done <- one.Run(ctx) }()
	require.Eventually(m.t, func() bool { // a queue that was just declared may have no leader yet, and a look fails
		_, err := one.Health()
		return err == nil
	}, time.Minute, time.Millisecond)
	return func() {
		cancel()
		require.NoError(m.t, <-done)
	}
}

// copied waits until so many copies are in the queue.
func (m *mirrored) copied(n int) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		met := map[string]bool{}
		require.NoError(m.t, m.mirror().Look(m.t.Context(), func(task string, _ taskstate.Status) { met[task] = true }))
		return len(met) == n
	}, time.Minute, 10*time.Millisecond)
}

// purge empties the queue.
func (m *mirrored) purge() error {
	ch, err := m.conn.Channel()
	require.NoError(m.t, err)
	defer ch.Close() //nolint:errcheck // an error has closed it
	_, err = ch.QueuePurge(m.cfg.Queue, false)
	return err
}

// judge is I22.
func (m *mirrored) judge() history.Result {
	m.t.Helper()
	m.aged()
	e := m.evidence()
	e.Copies = m.mirror().Look
	found, err := fsck.Check(m.t.Context(), e, m.options)
	require.NoError(m.t, err)
	return found.Report.Rule("I22")
}

// aged waits until all that has happened is older than the patience.
func (m *mirrored) aged() {
	at := time.Now()
	require.Eventually(m.t, func() bool { return time.Since(at) > 2*m.options.Patience }, time.Minute, 10*time.Millisecond)
}

// Both halves of the rule, seen in a real queue; looking loses no copy.
func TestI22IsJudgedInTheQueue(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		m := newMirrored(t, w)
		var ids []string
		for _, key := range []string{"key-a", "key-b", "key-c"} {
			ids = append(ids, w.accept(w.id("8002"), key))
		}
		bare := m.judge() // there is no queue yet
		require.Equal(t, int64(3), bare.Violations)
		require.Contains(t, bare.Examples[0].Problem, "neither a copy nor a row of mirror_failure")
		require.Error(t, m.purge(), "looking makes no queue")

		stop := m.run()
		m.copied(3)
		healthy := m.judge() // beside the mirror that acts
		require.Zero(t, healthy.Violations, healthy.Examples)
		require.Equal(t, int64(6), healthy.Judged, "three tasks and three copies")
		stop()
		m.copied(3)

		w.apply(ids[0], func(c taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(c, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}, taskstate.ReasonCancelled, "")
		})
		var left history.Result
		require.Eventually(t, func() bool { // it is given the time of a look
			left = m.judge()
			return left.Violations == 1
		}, time.Minute, time.Millisecond)
		require.Equal(t, ids[0], left.Examples[0].Task)
		require.Contains(t, left.Examples[0].Problem, "a copy of it is left")
		stop = m.run()
		m.copied(2)
		require.Zero(t, m.judge().Violations)
		stop()

		require.NoError(t, m.purge())
		require.Equal(t, int64(2), m.judge().Violations)
		at := now()
		w.sql(`INSERT INTO mirror_failure (task_id, reason, tries, created_at, updated_at) VALUES (?, 'no confirm', 3, ?, ?)`, ids[1], at, at)
		said := m.judge()
		require.Equal(t, int64(1), said.Violations, "the mirror has said of the other why")
		require.Equal(t, ids[2], said.Examples[0].Task)
	})
}

// A mirror that begins, or whose queue is just lost, is given time: what looks wrong is looked at again.
func TestACopyThatComesWhileACheckLooksIsEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.options.Patience = 50 * time.Millisecond
	w.options.Rest = false
	id := w.accept(w.id("8002"), "key-9")
	require.Eventually(t, func() bool { return time.Since(mustTask(w, id).CreatedAt) > w.options.Patience }, time.Minute, time.Millisecond)
	looks := 0
	e := w.evidence()
	e.Copies = func(_ context.Context, met func(string, taskstate.Status)) error {
		if looks++; looks > 1 {
			met(id, taskstate.StatusQueued)
		}
		return nil
	}
	found, err := fsck.Check(t.Context(), e, w.options)
	require.NoError(t, err)
	require.Zero(t, found.Report.Rule("I22").Violations)
	require.Equal(t, 2, looks)
}

// A task that is replayed is unfinished again from then on.
func TestAReplayedTaskMayWaitForItsCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.options.Rest, w.options.Patience, w.copies = false, time.Minute, []string{}
	w.edit(`created_at = ?`, `task_id = ?`, ago(), w.dead)
	w.sql(`UPDATE ingest_task_body SET created_at = ?`, ago())
	w.apply(w.dead, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Replay(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}, "")
	})
	got := w.check().Rule("I22")
	require.Zero(t, got.Violations)
	require.Equal(t, int64(2), got.Judged, "it is old, and has no copy")
}

func mustTask(w *world, id string) taskstate.Task {
	t, err := w.store.Get(w.t.Context(), taskstate.System(), id)
	require.NoError(w.t, err)
	return t
}
