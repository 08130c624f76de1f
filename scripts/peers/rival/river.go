package rival

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverChunk       = 1000
	riverWorkers     = 2000 // of River's own benchmark
	riverConnections = 80
	riverStop        = 20 * time.Second
)

// riverSystem inserts by COPY in chunks of 1,000; its completer works in batches by itself. Notifications are on.
type riverSystem struct {
	cfg    Config
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

type riverArgs struct {
	P string `json:"p"`
}

// Kind implements river.JobArgs.
func (riverArgs) Kind() string { return noopType }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle func([]byte)
}

// Work implements river.Worker.
func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	w.handle([]byte(j.Args.P))
	return nil
}

// Prepare implements System.
func (s *riverSystem) Prepare(ctx context.Context) error {
	if s.pool == nil {
		if err := s.open(ctx); err != nil {
			return err
		}
	}
	if _, err := s.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return err
	}
	var err error
	s.client, err = river.NewClient(riverpgxv5.New(s.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	return err
}

func (s *riverSystem) open(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(s.cfg.Postgres)
	if err != nil {
		return err
	}
	cfg.MaxConns = riverConnections
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	m, err := rivermigrate.New(riverpgxv5.New(s.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Submit implements System.
func (s *riverSystem) Submit(ctx context.Context, n int) error {
	return inChunks(ctx, n, riverChunk, 2*runtime.NumCPU(), func(ctx context.Context, size int) error {
		jobs := make([]river.InsertManyParams, size)
		for i := range jobs {
			jobs[i] = river.InsertManyParams{Args: riverArgs{string(Payload(0))}}
		}
		_, err := s.client.InsertManyFast(ctx, jobs)
		return err
	})
}

// Send implements System.
func (s *riverSystem) Send(ctx context.Context, payload []byte, committed func()) error {
	_, err := s.client.Insert(ctx, riverArgs{string(payload)}, nil)
	committed()
	return err
}

// Work implements System.
func (s *riverSystem) Work(ctx context.Context, handle func([]byte)) (func() error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	c, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
		// Its defaults are 100 ms and 1 s; the cooldown cannot go below 1 ms.
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), riverStop)
		defer cancel()
		defer s.pool.Reset() // sessions that end hand in their figures
		return c.Stop(ctx)
	}, c.Start(context.WithoutCancel(ctx))
}

// Drained implements System.
func (s *riverSystem) Drained(ctx context.Context, n int) (bool, error) {
	var done int
	err := s.pool.QueryRow(ctx, "SELECT COUNT(*) FROM river_job WHERE state = 'completed'").Scan(&done)
	return done >= n, err
}

// Close implements System.
func (s *riverSystem) Close() {
	if s.pool != nil {
		s.pool.Close()
	}
}
