package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

// world is an outbox in a database of its own.
type world struct {
	t     testing.TB
	tasks *taskstore.Store
	store *outbox.Store
}

// waitLimit only keeps a broken test from hanging: what a process gives a transaction or a silent session may be too little on
// a busy machine.
const waitLimit = 3 * time.Minute

func open(t testing.TB, address string) *world {
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
	return &world{t: t, tasks: tasks, store: outbox.NewStore(tasks)}
}

// onEachDatabase runs a test on SQLite, MariaDB and Postgres.
func onEachDatabase(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	databases := map[string]func(testing.TB) string{
		"sqlite":   taskstoretest.SQLite,
		"mariadb":  labserver.MySQLDatabase,
		"postgres": labserver.PostgresDatabase,
	}
	for name, address := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, address(t)))
		})
	}
}

// event is a row to insert; zero fields get values.
type event struct {
	topic, key, payload string
}

// insert commits events in one transaction and returns their ids.
func (w *world) insert(events ...event) []string {
	w.t.Helper()
	ids, err := w.tryInsert(w.t.Context(), events...)
	require.NoError(w.t, err)
	return ids
}

func (w *world) tryInsert(ctx context.Context, events ...event) ([]string, error) {
	ids := make([]string, len(events))
	for i := range events {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		ids[i] = id.String()
	}
	err := w.tasks.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		for i, e := range events {
			if e.topic == "" {
				e.topic = topic
			}
			if e.key == "" {
				e.key = ids[i]
			}
			if e.payload == "" {
				e.payload = "{}"
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO outbox_event (id, topic, message_key, payload, traceparent, wake_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
				ids[i], e.topic, e.key, e.payload, "00-"+strings.Repeat("a", 32)+"-"+strings.Repeat("b", 16)+"-01", m.Now, m.Now); err != nil {
				return err
			}
		}
		return nil
	})
	return ids, err
}

// many are n plain events.
func many(n int) []event { return make([]event, n) }

// exec changes rows behind the store's back.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	require.NoError(w.t, w.tasks.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}

// number returns a query's only number.
func (w *world) number(query string, args ...any) int {
	w.t.Helper()
	var n int
	require.NoError(w.t, w.tasks.Reader().QueryRowContext(w.t.Context(), query, args...).Scan(&n))
	return n
}

// count is how many events have a status.
func (w *world) count(s outbox.Status) int {
	return w.number("SELECT COUNT(*) FROM outbox_event WHERE status = ?", string(s))
}

// get reads an event.
func (w *world) get(id string) outbox.Item {
	w.t.Helper()
	item, err := w.store.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return item
}

// now is the database's clock.
func (w *world) now() time.Time {
	w.t.Helper()
	m, err := w.tasks.Moment(w.t.Context())
	require.NoError(w.t, err)
	return m.Now
}

// lease takes up to n events.
func (w *world) lease(token string, n int, lease time.Duration) []outbox.Leased {
	w.t.Helper()
	got, err := w.store.Turn(w.t.Context(), outbox.Turn{Status: outbox.StatusNew, Limit: n, Token: token, Lease: lease})
	require.NoError(w.t, err)
	return got
}

// sentMarks are the marks of events that were acknowledged.
func sentMarks(token string, events []outbox.Leased) []outbox.Mark {
	var out []outbox.Mark
	for _, e := range events {
		out = append(out, outbox.Mark{Seq: e.Seq, Token: token, To: outbox.StatusSent, Cause: outbox.CauseNone})
	}
	return out
}

// broker is a stand-in that keeps what it took, and does as it is told.
type broker struct {
	mu     sync.Mutex
	took   map[string]int // by event id
	order  []outbox.Event
	fail   func(e outbox.Event) error // nil: takes everything
	delay  time.Duration
	probes int
	down   error // what Probe answers, and every event
}

func newBroker() *broker { return &broker{took: map[string]int{}} }

func (b *broker) Send(ctx context.Context, events []outbox.Event) []outbox.Result {
	if b.delay > 0 {
		select {
		case <-time.After(b.delay):
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]outbox.Result, len(events))
	for i, e := range events {
		err := b.down
		if err == nil && b.fail != nil {
			err = b.fail(e)
		}
		if err == nil {
			b.took[e.ID]++
			b.order = append(b.order, e)
		}
		out[i] = outbox.Result{Seq: e.Seq, Err: err}
	}
	return out
}

func (b *broker) Probe(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes++
	return b.down
}

func (b *broker) set(down error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// times is how often the broker took an event.
func (b *broker) times(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.took[id]
}

var errDown = errors.New("dial tcp: connection refused")

// start runs a relay until the test ends or stop is called.
func (w *world) start(b outbox.Sender, change func(*outbox.Config, *outbox.Deps)) (stop func()) {
	w.t.Helper()
	cfg := outbox.NewDefaultConfig()
	cfg.Interval, cfg.Lease = 50*time.Millisecond, 2*waitLimit // whoever is held up keeps what it is sending: once means once
	d := outbox.Deps{Store: w.store, Sender: b, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Clock: time.Now}
	if change != nil {
		change(&cfg, &d)
	}
	r, err := outbox.NewRelay(cfg, d)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
	w.t.Cleanup(stop)
	return stop
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, waitLimit, 10*time.Millisecond, what)
}
