package pgvector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	minTimeout     = time.Second
	defaultTimeout = time.Minute
	// dialTime bounds one attempt to connect, and the look whether a connection that was idle still works.
	dialTime = 5 * time.Second
	// defaultConns are those of a pool, leastConns the fewest: half are for writers, so that searches wait for none of them.
	defaultConns, leastConns = 8, 2
	maxConns                 = "pool_max_conns" // a parameter of the URL
)

// Config is what an operator sets about pgvector.
type Config struct {
	URL     string        // PGVECTOR_URL: postgres://user:password@host:5432/database, also with pool_max_conns (8)
	Timeout time.Duration // PGVECTOR_TIMEOUT: longest time of one statement, 1s..1h
}

// NewDefaultConfig returns the defaults; URL has none.
func NewDefaultConfig() Config { return Config{Timeout: defaultTimeout} }

// Validate names every setting that cannot be used, and its range.
func (c Config) Validate() error {
	_, err := c.pool()
	if c.Timeout < minTimeout || c.Timeout > time.Hour {
		err = errors.Join(err, fmt.Errorf("PGVECTOR_TIMEOUT: %v is not within %v..1h", c.Timeout, minTimeout))
	}
	return err
}

// pool is the configuration of the connections; its error never shows the password.
func (c Config) pool() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(c.URL)
	switch {
	case c.URL == "":
		return nil, errors.New("PGVECTOR_URL: is not set")
	case err != nil:
		return nil, fmt.Errorf("PGVECTOR_URL: not a URL of the form postgres://user:password@host:5432/database: %s", sqldb.HideLogin(err.Error(), c.URL))
	case cfg.MaxConns < leastConns:
		return nil, fmt.Errorf("PGVECTOR_URL: %s=%d is less than %d", maxConns, cfg.MaxConns, leastConns)
	}
	if !strings.Contains(c.URL, maxConns) {
		cfg.MaxConns = defaultConns
	}
	return cfg, nil
}

// sessions sets what each connection is opened with.
func (c Config) sessions(cfg *pgxpool.Config) {
	cfg.PingTimeout = dialTime
	conn := cfg.ConnConfig
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = dialTime
	}
	// Each statement is planned for its own values: a general plan would not know how few rows a search wants.
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	ms := strconv.FormatInt(c.Timeout.Milliseconds(), 10)
	set := sqldb.Settings(conn.RuntimeParams, map[string]string{
		"application_name": "millweir", "jit": "off", "default_transaction_isolation": "read committed",
		// A process that was paused or cut off must not hold up others.
		"statement_timeout": ms, "idle_in_transaction_session_timeout": ms,
		"hnsw.ef_search": strconv.Itoa(efSearch), "hnsw.iterative_scan": "relaxed_order",
		"hnsw.max_scan_tuples": strconv.Itoa(maxScanTuples), "hnsw.scan_mem_multiplier": strconv.Itoa(scanMemory),
	})
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.PgConn().Exec(ctx, set).ReadAll()
		return err
	}
}

// String shows the configuration without its secrets.
func (c Config) String() string { return fmt.Sprintf("{Timeout:%v}", c.Timeout) }

// LogValue shows the configuration without its secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
