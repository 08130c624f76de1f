package rival

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// flushRedis empties a Redis of the rivals.
func flushRedis(ctx context.Context, addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	return errors.Join(c.FlushAll(ctx).Err(), c.Close())
}

// asynqSystem has no bulk enqueue in its interface, so that as many clients as there are workers enqueue side by side.
type asynqSystem struct {
	cfg    Config
	client *asynq.Client
	look   *asynq.Inspector
}

// Prepare implements System.
func (s *asynqSystem) Prepare(ctx context.Context) error {
	s.Close()
	o := asynq.RedisClientOpt{Addr: s.cfg.Redis, PoolSize: s.cfg.Workers}
	s.client, s.look = asynq.NewClient(o), asynq.NewInspector(o)
	return flushRedis(ctx, s.cfg.Redis)
}

// Submit implements System.
func (s *asynqSystem) Submit(ctx context.Context, n int) error {
	return each(ctx, n, s.cfg.Workers, func(ctx context.Context, _ int) error { return s.Send(ctx, Payload(0), func() {}) })
}

// Send implements System.
func (s *asynqSystem) Send(ctx context.Context, payload []byte, committed func()) error {
	_, err := s.client.EnqueueContext(ctx, asynq.NewTask(noopType, payload))
	committed()
	return err
}

// Work implements System.
func (s *asynqSystem) Work(_ context.Context, handle func([]byte)) (func() error, error) {
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: s.cfg.Redis, PoolSize: s.cfg.Workers + 10},
		asynq.Config{Concurrency: s.cfg.Workers, LogLevel: asynq.FatalLevel, TaskCheckInterval: 5 * time.Millisecond})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error { handle(t.Payload()); return nil }))
	return func() error { server.Shutdown(); return nil }, err
}

// Drained implements System.
func (s *asynqSystem) Drained(context.Context, int) (bool, error) {
	q, err := s.look.GetQueueInfo("default")
	return err == nil && q.Pending == 0 && q.Active == 0, err
}

// Close implements System.
func (s *asynqSystem) Close() {
	if s.client != nil {
		_ = errors.Join(s.client.Close(), s.look.Close()) // only connections
	}
	s.client, s.look = nil, nil
}
