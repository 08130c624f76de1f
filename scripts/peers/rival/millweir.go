package rival

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/redisclient"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

const (
	bulk        = 500 // tasks of one transaction, as the row-batching rivals get
	bulkers     = 4   // transactions at a time
	noopType    = "noop"
	defaultSlot = 0 // as shipped: a backlog of short tasks gets up to 1,024. River gets 2,000, which is what its own benchmark sets

	// Of pkg/ingest.
	acceptWorkers = 4
	acceptMost    = 128
	acceptMaxWait = 250 * time.Millisecond
)

// millweir is the product's own code with everything on: fences, leases, heartbeats, audit rows, recovery, sweeps, figures.
type millweir struct {
	cfg Config
	// database makes a new one.
	database func(ctx context.Context, cfg Config) (taskstore.Config, error)

	store *taskstore.Store
	redis rueidis.Client
	queue redisq.Config
	sent  *redisq.Publisher
	// single joins the tasks that come one at a time, as uploads are joined (pkg/ingest).
	single *batcher.Batcher[sending]
}

// sending is a task that came alone.
type sending struct {
	payload   []byte
	committed func()
}

// Prepare makes a new database and an empty Redis.
func (s *millweir) Prepare(ctx context.Context) error {
	s.Close()
	cfg, err := s.database(ctx, s.cfg)
	if err != nil {
		return err
	}
	if s.store, err = taskstore.Open(ctx, cfg); err != nil {
		return err
	}
	if _, err = s.store.Migrate(ctx); err != nil {
		return err
	}
	address := "redis://" + s.cfg.Redis
	if s.redis, err = redisclient.New(address); err != nil {
		return err
	}
	s.queue = redisq.NewDefaultConfig(address)
	s.single = batcher.New(batcher.Config{Workers: acceptWorkers, Most: acceptMost, MaxWait: acceptMaxWait}, s.acceptTogether)
	s.sent = redisq.NewPublisher(s.redis, s.queue, slog.New(slog.DiscardHandler), time.Now, redisq.NewMetrics(nil))
	return s.redis.Do(ctx, s.redis.B().Flushall().Build()).Error()
}

// Submit implements System.
func (s *millweir) Submit(ctx context.Context, n int) error {
	payload := Payload(0)
	return inChunks(ctx, n, bulk, bulkers, func(ctx context.Context, size int) error {
		tasks, err := s.accept(ctx, slices.Repeat([][]byte{payload}, size))
		if err != nil {
			return err
		}
		return taskrun.Publish(ctx, s.sent, tasks)
	})
}

// Send implements System.
func (s *millweir) Send(ctx context.Context, payload []byte, committed func()) error {
	return s.single.Do(ctx, sending{payload, committed})[0]
}

// acceptTogether accepts what came while the last batch was committed; the next one need not wait for Redis.
func (s *millweir) acceptTogether(ctx context.Context, b *batcher.Batch[sending]) error {
	var payloads [][]byte
	for _, x := range b.Items() {
		payloads = append(payloads, x.payload)
	}
	tasks, err := s.accept(ctx, payloads)
	if err != nil {
		return err
	}
	b.Release()
	for _, x := range b.Items() {
		x.committed()
	}
	return taskrun.Publish(ctx, s.sent, tasks)
}

// accept is the transaction of uploads, without their documents: the rivals have none.
func (s *millweir) accept(ctx context.Context, payloads [][]byte) ([]taskstate.Task, error) {
	return s.store.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		out := make([]taskstate.NewTask, len(payloads))
		for i, payload := range payloads {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, err
			}
			out[i] = taskstate.NewTask{
				Task:  taskstate.Task{ID: id.String(), UserID: "local", Type: noopType, Channel: "http", Payload: payload, MaxAttempts: 10},
				Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "local"},
			}
		}
		return out, nil
	})
}

// Work implements System.
func (s *millweir) Work(ctx context.Context, handle func(payload []byte)) (func() error, error) {
	cfg := taskrun.NewDefaultConfig()
	cfg.Process, cfg.Policy.DLQ, cfg.Concurrency = "peers-"+strconv.Itoa(os.Getpid()), true, slots()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	runner := taskrun.New(cfg, taskrun.Deps{
		Store: s.store, Queue: redisq.New(s.redis, s.queue, log, time.Now, redisq.NewMetrics(reg)),
		Handlers: map[string]taskrun.Handler{noopType: noop{handle}}, Log: log, Metrics: reg,
	})
	return beside(ctx, runner.Run), nil
}

// slots are the tasks that run at once; PEERS_SLOTS sets them.
func slots() int {
	if n, err := strconv.Atoi(os.Getenv("PEERS_SLOTS")); err == nil {
		return n
	}
	return defaultSlot
}

// Drained implements System: entries are acknowledged after the commit of their tasks, so none pending and none unread is all done.
func (s *millweir) Drained(ctx context.Context, _ int) (bool, error) {
	stats, err := s.sent.Stats(ctx)
	return err == nil && stats.Pending == 0, err
}

// Check implements Checker: every task succeeded in its first claim, with all of its audit rows.
func (s *millweir) Check(ctx context.Context, n int) error {
	counts, err := s.store.Counts(ctx, taskstate.System(), "")
	if err != nil {
		return err
	}
	if got := counts[taskstate.StatusSucceeded]; got != int64(n) {
		return fmt.Errorf("%d of %d tasks succeeded: %v", got, n, counts)
	}
	return s.store.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		var log, again int
		err := errors.Join(
			db.QueryRowContext(ctx, "SELECT COUNT(*) FROM ingest_task_transition").Scan(&log),
			db.QueryRowContext(ctx, "SELECT COUNT(*) FROM ingest_task WHERE fence <> 1").Scan(&again))
		if err == nil && (log != 3*n || again != 0) {
			err = fmt.Errorf("%d tasks left %d audit rows and %d were claimed more than once", n, log, again)
		}
		return err
	})
}

// Close implements System.
func (s *millweir) Close() {
	if s.redis != nil {
		s.redis.Close()
	}
	if s.store != nil {
		_ = s.store.Close() // nothing is left to lose
	}
	s.redis, s.store = nil, nil
}

// noop handles a task by a call of handle.
type noop struct{ handle func([]byte) }

// Describe implements taskrun.Handler.
func (noop) Describe() taskrun.Description { return taskrun.Description{Noun: "test"} }

// Handle implements taskrun.Handler.
func (k noop) Handle(_ context.Context, job taskrun.Job) taskrun.Result {
	k.handle(job.Task.Payload)
	return taskrun.Result{}
}

// Classify implements taskrun.Handler.
func (noop) Classify(err error) taskstate.Failure {
	return taskstate.Failure{Code: "NOOP", Cause: err.Error(), Message: "it failed"}
}

// OnTransition implements taskrun.Handler.
func (noop) OnTransition(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision, map[string]any) error {
	return nil
}

func onMySQL(ctx context.Context, cfg Config) (taskstore.Config, error) {
	dsn, err := freshMySQL(ctx, cfg.MySQL, "peers_millweir")
	return taskstore.Config{MySQLDSN: dsn}, err
}

func onPostgres(ctx context.Context, cfg Config) (taskstore.Config, error) {
	const database = "peers_millweir"
	conn, err := pgx.Connect(ctx, cfg.Postgres)
	if err != nil {
		return taskstore.Config{}, err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is left to lose
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + database + " WITH (FORCE)", "CREATE DATABASE " + database} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return taskstore.Config{}, err
		}
	}
	u, err := url.Parse(cfg.Postgres)
	if err != nil {
		return taskstore.Config{}, err
	}
	u.Path = "/" + database
	return taskstore.Config{DatabaseURL: u.String()}, nil
}

// onSQLite makes a file in a folder of the system's temporary files, which Close leaves.
func onSQLite(context.Context, Config) (taskstore.Config, error) {
	dir, err := os.MkdirTemp("", "peers")
	return taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(dir, "millweir.db")}, err
}

// freshMySQL makes the database anew and returns its data source name.
func freshMySQL(ctx context.Context, dsn, database string) (string, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close() //nolint:errcheck // only a connection
	for _, q := range []string{"DROP DATABASE IF EXISTS " + database, "CREATE DATABASE " + database} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return "", fmt.Errorf("%s: %w", q, err)
		}
	}
	return inDatabase(dsn, database)
}
