package pgvector

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// tracerName is that of this package.
const tracerName = "github.com/millweir/millweir/pkg/ingest/vector/pgvector"

// on runs do with a base's collection, and once more when another process has dropped that meanwhile. create makes one of dim
// values when it is missing; without, nothing is run then. dim is compared with the collection's; 0: it may have any.
func (s *Store) on(ctx context.Context, operation, base string, dim int, create bool, do func(context.Context, *pgxpool.Conn, collection) error) error {
	return s.try(ctx, operation, func(ctx context.Context, conn *pgxpool.Conn) error {
		for again := false; ; again = true {
			c, err := s.resolve(ctx, conn, base, dim, create)
			if err != nil || c.dim == 0 {
				return err
			}
			err = do(ctx, conn, c)
			if err == nil || !isStale(err) {
				return err
			}
			s.forget(base)
			if again {
				return err
			}
		}
	})
}

// resolve returns a base's collection; that has dim 0 when it is missing and create is not set.
// Errors: CodeDimension, permanent.
func (s *Store) resolve(ctx context.Context, conn *pgxpool.Conn, base string, dim int, create bool) (collection, error) {
	if c, known := s.known(base); known && (dim == 0 || c.dim == dim) {
		return c, nil
	}
	c, ready, err := look(ctx, conn, tableName(base))
	if err == nil && create && (!ready || c.dim == 0) {
		c, err = makeMissing(ctx, conn, c.table, dim)
	}
	switch {
	case err != nil:
		return c, err
	case c.dim == 0:
		s.forget(base)
		return c, nil
	}
	s.mu.Lock()
	s.collections[base] = c
	s.mu.Unlock()
	if dim != 0 && c.dim != dim {
		return c, vector.DimensionFailure(dim, c.dim)
	}
	return c, nil
}

func (s *Store) known(base string) (collection, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.collections[base]
	return c, known
}

func (s *Store) forget(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.collections, base)
}

// try runs do on a connection, at most three times within 2 s (design D16). Errors: *ingest.Failure; that of ctx when it ended.
func (s *Store) try(ctx context.Context, operation string, do func(context.Context, *pgxpool.Conn) error) error {
	ctx, span := otel.Tracer(tracerName).Start(ctx, "pgvector "+operation, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("db.system.name", "postgresql"), attribute.String("db.operation.name", operation)))
	defer span.End()
	err := rest.Retry(ctx, func() error { return s.once(ctx, do) }, func(err error) (bool, time.Duration) { return isRetryable(err), 0 })
	if err != nil {
		span.SetStatus(codes.Error, "") // its words are the caller's to redact
	}
	return failure(ctx, operation, err)
}

// once runs do on a connection; the wait for that, and do, end after the longest time of a statement. A connection that the
// server ended takes all others along: they were most likely ended too, and a call has fewer tries than the pool connections.
func (s *Store) once(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	conn, err := s.pool.Acquire(limited)
	if err != nil {
		if limited.Err() != nil && s.pool.Stat().AcquiredConns() == s.pool.Stat().MaxConns() {
			return fmt.Errorf("%w: all %d are in use: %w", errBusy, s.pool.Stat().MaxConns(), err)
		}
		return err
	}
	defer conn.Release()
	err = do(limited, conn)
	if conn.Conn().IsClosed() && limited.Err() == nil {
		s.pool.Reset()
	}
	return err
}
