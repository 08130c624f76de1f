package mirror_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/sqldb"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	pb "github.com/millweir/millweir/proto"
)

// waitLimit only keeps a broken test from hanging.
const waitLimit = 2 * time.Minute

// world is a database and names in a RabbitMQ that no other test has.
type world struct {
	t      testing.TB
	server *labserver.Server
	tasks  *taskstore.Store
	cfg    mirror.Config
	conn   *amqp.Connection
	ch     *amqp.Channel // the test's own, for looks and harm
	acting int           // mirrors that run
}

func openStore(t testing.TB, address string) *taskstore.Store {
	t.Helper()
	cfg := taskstore.Config{DatabaseURL: address}
	if !strings.Contains(address, ":/") && !strings.HasPrefix(address, "sqlite:") {
		cfg = taskstore.Config{MySQLDSN: address}
	}
	cfg.Timeout, cfg.Silence = waitLimit, waitLimit
	tasks, err := taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tasks.Close() })
	_, err = tasks.Migrate(t.Context())
	require.NoError(t, err)
	return tasks
}

// newWorld is a world in the shared RabbitMQ, or in one of its own.
func newWorld(t testing.TB, server *labserver.Server, address string) *world {
	t.Helper()
	w := &world{t: t, server: server, tasks: openStore(t, address), cfg: mirror.NewDefaultConfig(server.URL(""))}
	own := "t" + strings.ToLower(rand.Text()[:8]) + "."
	w.cfg.Exchange, w.cfg.Queue, w.cfg.RoutingKey = own+"durable", own+"quorum", own+"key"
	w.cfg.DLX = own + "dlx"
	w.dial()
	return w
}

// dial connects the test itself.
func (w *world) dial() {
	w.t.Helper()
	var err error
	// At the library's 10 s between heartbeats it gives a connection up after 15 s without a frame: tests pause the server for ten.
	w.conn, err = amqp.DialConfig(w.server.URL(""), amqp.Config{Heartbeat: time.Minute, Locale: "en_US"})
	require.NoError(w.t, err)
	conn := w.conn
	w.t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	w.ch, err = w.conn.Channel()
	require.NoError(w.t, err)
}

// onSQLite is a world on SQLite in the shared RabbitMQ.
func onSQLite(t *testing.T) *world {
	t.Helper()
	return newWorld(t, labserver.RabbitMQ(t), taskstoretest.SQLite(t))
}

// onEachDatabase runs a test on SQLite, MariaDB and Postgres.
func onEachDatabase(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, address := range map[string]func(testing.TB) string{
		"sqlite": taskstoretest.SQLite, "mariadb": labserver.MySQLDatabase, "postgres": labserver.PostgresDatabase,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, labserver.RabbitMQ(t), address(t)))
		})
	}
}

// running is a mirror that runs.
type running struct {
	*mirror.Mirror
	w       *world
	metrics *prometheus.Registry
	log     *bytes.Buffer // read it when the mirror has stopped
	stop    func()
}

// start runs a mirror until the test ends or stop is called.
func (w *world) start() *running {
	w.t.Helper()
	return w.startOn(w.tasks)
}

func (w *world) startOn(db taskstate.Database) *running {
	w.t.Helper()
	r := &running{w: w, metrics: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	var err error
	r.Mirror, err = mirror.New(w.cfg, mirror.Deps{DB: db, Name: "test", Log: slog.New(slog.NewTextHandler(r.log, nil)), Metrics: r.metrics, Clock: time.Now})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	w.acting++
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
		w.acting--
	})
	w.t.Cleanup(r.stop)
	return r
}

// gauge is a figure of the mirror; false: it is not shown.
func (r *running) gauge(name string, labels ...string) (float64, bool) {
	families, err := r.metrics.Gather()
	require.NoError(r.w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || len(labels) > 0 && m.GetLabel()[0].GetValue() != labels[0] {
				continue
			}
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}

// knows waits until the mirror knows so many copies and misses none.
func (r *running) knows(n int) {
	r.w.t.Helper()
	defer func() {
		if r.w.t.Failed() {
			warning, err := r.Health()
			r.w.t.Logf("warning %q, error %v, %d in the queue", warning, err, r.w.ready(r.w.cfg.Queue))
		}
	}()
	r.w.eventually("the mirror knows its copies", func() bool {
		copies, shown := r.gauge("mirror_copies")
		missing, _ := r.gauge("mirror_missing")
		_, covered := r.gauge("mirror_lag_seconds")
		return shown && covered && int(copies) == n && missing == 0
	})
}

// standsBy waits until the mirror says that another one acts.
func (r *running) standsBy() {
	r.w.t.Helper()
	r.w.eventually("it stands by", func() bool {
		warning, err := r.Health()
		return err == nil && strings.Contains(warning, "stands by")
	})
}

// lease gives the lease of the mirror that acts to a mirror that is not there.
func (w *world) lease(holder string, lasts time.Duration) {
	w.t.Helper()
	require.NoError(w.t, w.tasks.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		query := sqldb.Rebind(sqldb.Dialect(w.tasks.Dialect()), "UPDATE mirror_lease SET holder = ?, lease_until = ?")
		_, err := tx.ExecContext(ctx, query, holder, m.Now.Add(lasts))
		return err
	}))
}

func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	require.Eventually(w.t, cond, waitLimit, 10*time.Millisecond, what)
}

// await waits until a channel is closed.
func (w *world) await(done <-chan struct{}) {
	w.t.Helper()
	select {
	case <-done:
	case <-time.After(waitLimit):
		require.Fail(w.t, "it did not happen")
	}
}

// submit makes n tasks and returns their ids.
func (w *world) submit(n int) []string {
	w.t.Helper()
	ids := make([]string, n)
	var tasks []taskstate.NewTask
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7()).String()
		tasks = append(tasks, taskstate.NewTask{
			Task: taskstate.Task{
				ID: ids[i], UserID: "anna", Type: "document", Channel: "http", MaxAttempts: 3, IdempotencyKey: "key-" + ids[i], Payload: []byte(`{"n":1}`),
				TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "anna"},
		})
	}
	w.insert(tasks...)
	return ids
}

func (w *world) insert(tasks ...taskstate.NewTask) {
	w.t.Helper()
	_, err := w.tasks.Submit(w.t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return tasks, nil })
	require.NoError(w.t, err)
}

var operator = taskstate.Actor{Kind: taskstate.ActorOperator, Name: "olga"}

// cancel ends tasks.
func (w *world) cancel(ids ...string) {
	w.t.Helper()
	w.apply(ids, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, operator, taskstate.ReasonCancelled, "")
	})
}

func (w *world) suspend(ids ...string) {
	w.t.Helper()
	w.apply(ids, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Suspend(m, t, operator, "")
	})
}

func (w *world) apply(ids []string, f func(taskstate.DBClock, taskstate.Task) taskstate.Decision) {
	w.t.Helper()
	_, err := w.tasks.Apply(w.t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(f)})
	require.NoError(w.t, err)
}

// ready is how many messages a queue has that nobody has taken; -1: there is no such queue.
func (w *world) ready(queue string) int {
	ch, err := w.conn.Channel()
	require.NoError(w.t, err)
	defer ch.Close() //nolint:errcheck // closed already where there is no queue
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return -1
	}
	return q.Messages
}

// copies waits for so many copies in the queue.
func (w *world) copies(n int) {
	w.t.Helper()
	w.eventually("copies in the queue", func() bool { return w.ready(w.cfg.Queue) == n })
}

// messages takes all messages, gives them back and returns them. Stop the mirrors first: they take messages too, for a round that may
// begin at any moment.
func (w *world) messages() []amqp.Delivery {
	w.t.Helper()
	require.Zero(w.t, w.acting, "a mirror runs")
	ch, err := w.conn.Channel()
	require.NoError(w.t, err)
	defer ch.Close() //nolint:errcheck // it gives back what was taken
	var out []amqp.Delivery
	for {
		d, found, err := ch.Get(w.cfg.Queue, false)
		require.NoError(w.t, err)
		if !found {
			return out
		}
		out = append(out, d)
	}
}

// put publishes a message into the queue as anybody may.
func (w *world) put(m amqp.Publishing) {
	w.t.Helper()
	m.DeliveryMode = amqp.Persistent
	require.NoError(w.t, w.ch.PublishWithContext(w.t.Context(), w.cfg.Exchange, w.cfg.RoutingKey, true, false, m))
}

// byTask counts copies by the task of their body.
func byTask(t testing.TB, messages []amqp.Delivery) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, m := range messages {
		e, err := pb.Decode(m.Body)
		require.NoError(t, err)
		out[e.GetTaskId()]++
	}
	return out
}

// once is each of ids once.
func once(ids []string) map[string]int {
	out := map[string]int{}
	for _, id := range ids {
		out[id] = 1
	}
	return out
}

// failures are the tasks in mirror_failure with their reasons.
func (w *world) failures() map[string]string {
	w.t.Helper()
	rows, err := w.tasks.Reader().QueryContext(w.t.Context(), "SELECT task_id, reason FROM mirror_failure")
	require.NoError(w.t, err)
	defer rows.Close() //nolint:errcheck // read to its end
	out := map[string]string{}
	for rows.Next() {
		var id, reason string
		require.NoError(w.t, rows.Scan(&id, &reason))
		out[id] = reason
	}
	require.NoError(w.t, rows.Err())
	return out
}
