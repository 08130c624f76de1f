package rival

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	naiveStream  = "ingest:tasks"
	naiveWorkers = 16
	naiveBlock   = 500e6 // nanoseconds of one read
)

// naive is the design that Millweir replaces: a row, a statement and a commit for every step of every task,
// a claim without fence or lease, and XADD after the commit.
type naive struct {
	cfg   Config
	db    *sql.DB
	redis *redis.Client
}

// naiveTables are those of that design, with its index on the status.
var naiveTables = []string{
	`CREATE TABLE knowledge_document (
  id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, base_id VARCHAR(64) NOT NULL, title VARCHAR(255) NOT NULL,
  path VARCHAR(512) NOT NULL, status VARCHAR(16) NOT NULL, created_at DATETIME(3) NOT NULL)`,
	`CREATE TABLE ingest_task (
  id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, attempt_count INT NOT NULL DEFAULT 0,
  next_retry_at DATETIME(3) NULL, last_error VARCHAR(1000) NULL, error_message VARCHAR(1000) NULL, payload VARBINARY(512) NULL,
  created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NOT NULL, KEY ix_status (status, next_retry_at))`,
	`CREATE TABLE ingest_task_transition (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  from_status VARCHAR(16) CHARACTER SET ascii NULL, to_status VARCHAR(16) CHARACTER SET ascii NOT NULL, attempt_count INT NOT NULL,
  message VARCHAR(500) NULL, created_at DATETIME(3) NOT NULL, KEY ix_task (task_id, id))`,
}

// Its statements, each committed by itself.
const (
	naiveDocument = "INSERT INTO knowledge_document VALUES (?, ?, ?, ?, ?, NOW(3))"
	naiveTask     = "INSERT INTO ingest_task (id, document_id, status, payload, created_at, updated_at) VALUES (?, ?, 'QUEUED', ?, NOW(3), NOW(3))"
	naiveClaim    = `UPDATE ingest_task SET status = 'RUNNING', updated_at = NOW(3)
WHERE id = ? AND status IN ('QUEUED', 'RETRYING') AND (next_retry_at IS NULL OR next_retry_at <= NOW(3))`
	naiveFinish = "UPDATE ingest_task SET status = 'SUCCEEDED', updated_at = NOW(3) WHERE id = ? AND status = 'RUNNING'"
	naiveLog    = "INSERT INTO ingest_task_transition (task_id, from_status, to_status, attempt_count, created_at) VALUES (?, ?, ?, 0, NOW(3))"
)

// Prepare implements System.
func (s *naive) Prepare(ctx context.Context) error {
	s.Close()
	dsn, err := freshMySQL(ctx, s.cfg.MySQL, "peers_naive")
	if err != nil {
		return err
	}
	if s.db, err = openMySQL(ctx, dsn, s.cfg.Workers+4); err != nil {
		return err
	}
	for _, table := range naiveTables {
		if _, err := s.db.ExecContext(ctx, table); err != nil {
			return err
		}
	}
	s.redis = redis.NewClient(&redis.Options{Addr: s.cfg.Redis, PoolSize: s.cfg.Workers})
	if err := s.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return s.redis.XGroupCreateMkStream(ctx, naiveStream, consumers, "0").Err()
}

// Submit implements System.
func (s *naive) Submit(ctx context.Context, n int) error {
	return each(ctx, n, s.cfg.Workers, func(ctx context.Context, _ int) error { return s.Send(ctx, Payload(0), func() {}) })
}

// Send implements System.
func (s *naive) Send(ctx context.Context, payload []byte, committed func()) error {
	document, id := uuid.NewString(), uuid.NewString()
	if _, err := s.db.ExecContext(ctx, naiveDocument, document, "kb", "title", "/data/x/"+document, "QUEUED"); err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, naiveTask, id, document, payload); err != nil {
		return err
	}
	committed()
	return s.redis.XAdd(ctx, &redis.XAddArgs{Stream: naiveStream, Values: []any{"taskId", id, "p", payload}}).Err()
}

// Work implements System.
func (s *naive) Work(ctx context.Context, handle func([]byte)) (func() error, error) {
	return beside(ctx, func(ctx context.Context) error {
		var workers errgroup.Group
		for i := range naiveWorkers {
			workers.Go(func() error { return s.worker(ctx, "c"+strconv.Itoa(i), handle) })
		}
		return workers.Wait()
	}), nil
}

// worker takes one message after the other until ctx ends.
func (s *naive) worker(ctx context.Context, name string, handle func([]byte)) error {
	for ctx.Err() == nil {
		streams, err := s.redis.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: consumers, Consumer: name, Count: 1, Block: naiveBlock, Streams: []string{naiveStream, ">"},
		}).Result()
		if err != nil || len(streams) == 0 {
			continue // nothing to read, or the end
		}
		for _, m := range streams[0].Messages {
			if err := s.process(context.WithoutCancel(ctx), m, handle); err != nil {
				return err
			}
		}
	}
	return nil
}

// process does one task, statement by statement.
func (s *naive) process(ctx context.Context, m redis.XMessage, handle func([]byte)) error {
	id, payload := text(m.Values["taskId"]), text(m.Values["p"])
	claimed, err := s.db.ExecContext(ctx, naiveClaim, id)
	if err != nil {
		return err
	}
	if n, err := claimed.RowsAffected(); err != nil || n == 0 {
		return err
	}
	if _, err := s.db.ExecContext(ctx, naiveLog, id, "QUEUED", "RUNNING"); err != nil {
		return err
	}
	handle([]byte(payload))
	if _, err := s.db.ExecContext(ctx, naiveFinish, id); err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, naiveLog, id, "RUNNING", "SUCCEEDED"); err != nil {
		return err
	}
	return s.redis.XAck(ctx, naiveStream, consumers, m.ID).Err()
}

// text is a field of a message.
func text(v any) string {
	s, _ := v.(string)
	return s
}

// Drained implements System.
func (s *naive) Drained(ctx context.Context, _ int) (bool, error) {
	p, err := s.redis.XPending(ctx, naiveStream, consumers).Result()
	return err == nil && p.Count == 0, err
}

// Close implements System.
func (s *naive) Close() {
	if s.db != nil {
		_ = s.db.Close() // only connections
	}
	if s.redis != nil {
		_ = s.redis.Close()
	}
	s.db, s.redis = nil, nil
}
