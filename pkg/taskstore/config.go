package taskstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	defaultMaxOpen = 16
	// defaultSilence is below the usual lease: what a paused process had locked is free again when its tasks are taken over.
	defaultSilence = 15 * time.Second
	// idleShare of the silence is how long an unused connection is kept: the server must not be the one to end it.
	idleShare = 2.0 / 3
)

// Config says which database to use. Exactly one of MySQLDSN and DatabaseURL is set.
type Config struct {
	// MySQLDSN is user:password@tcp(host:3306)/database, as the Go driver for MySQL takes it.
	MySQLDSN string
	// DatabaseURL is mysql://…, postgres://… or sqlite:PATH, of a dialect that the program links (see sqldb.Register).
	DatabaseURL string
	// MaxOpen is the most connections to a server at a time that run transactions, and as many again for all else; 0: 16.
	MaxOpen int
	// Timeout bounds one attempt of one transaction, waits included; 0: 30 s.
	Timeout time.Duration
	// Silence is how long a server keeps a session, and its locks, from which it hears nothing; 0: 15 s.
	Silence time.Duration
	// AllowUnsafe uses a server even though its own crash would lose answered commits; otherwise every statement
	// fails with a taskstate.ErrUnavailable that wraps a sqldb.UnsafeError.
	AllowUnsafe bool
	// Now is SQLite's clock, for tests; nil: time.Now. Servers have clocks of their own.
	Now func() time.Time
	// Outbox writes the messages about changed rows into their transactions (Kafka transport); nil: none.
	Outbox taskstate.OutboxFunc
	// OnEvents is called after each commit that wrote such messages; it must not block. nil: nothing.
	OnEvents func()
}

// Validate returns every problem of the configuration, joined; each begins with the variable's name.
func (c Config) Validate() error {
	var errs []error
	switch {
	case c.MySQLDSN == "" && c.DatabaseURL == "":
		errs = append(errs, errors.New("MYSQL_DSN or DATABASE_URL: one of them must be set"))
	case c.MySQLDSN != "" && c.DatabaseURL != "":
		errs = append(errs, errors.New("MYSQL_DSN and DATABASE_URL: set only one of them"))
	case c.MySQLDSN != "":
		if err := checkAddress(sqldb.SchemeDSN, c.MySQLDSN); err != nil {
			errs = append(errs, fmt.Errorf("MYSQL_DSN: %w", err))
		}
	default:
		if err := checkAddress(scheme(c.DatabaseURL), c.DatabaseURL); err != nil {
			errs = append(errs, fmt.Errorf("DATABASE_URL: %w", err))
		}
	}
	if c.MaxOpen < 0 {
		errs = append(errs, fmt.Errorf("most open connections: %d is negative", c.MaxOpen))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s is negative", c.Timeout))
	}
	if c.Silence != 0 && c.Silence < time.Second {
		errs = append(errs, fmt.Errorf("silence: %s is below 1 s", c.Silence))
	}
	return errors.Join(errs...)
}

// scheme is the part of a DATABASE_URL before the colon.
func scheme(url string) string {
	name, _, _ := strings.Cut(url, ":")
	return name
}

// checkAddress tries an address without connecting.
func checkAddress(scheme, address string) error {
	driver, ok := sqldb.DriverOf(scheme)
	switch {
	case ok:
		return driver.Check(address)
	case scheme == "sqlite":
		return errors.New("SQLite is for millweir dev, which runs everything in one process; this program wants " + sqldb.Forms())
	}
	return errors.New("want " + sqldb.Forms())
}

// Open opens the database that cfg names. A server is not asked before the first statement, so that no service depends
// on one that answers to start (design D16); Ping tries it. The schema is not touched: see Migrate.
// Errors: a configuration that Validate refuses; for SQLite taskstate.ErrUnavailable with the cause.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MaxOpen == 0 {
		cfg.MaxOpen = defaultMaxOpen
	}
	if cfg.Silence == 0 {
		cfg.Silence = defaultSilence
	}
	b, err := openBackend(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
	}
	s := New(sqldb.New(b, cfg.Timeout))
	s.outbox, s.onEvents = cfg.Outbox, cfg.OnEvents
	return s, nil
}

// openBackend picks the driver by the address.
func openBackend(ctx context.Context, cfg Config) (*sqldb.Backend, error) {
	pool := sqldb.PoolSize{
		MaxOpen: cfg.MaxOpen, MaxIdle: cfg.MaxOpen, Silence: cfg.Silence,
		IdleTime: time.Duration(float64(cfg.Silence) * idleShare), AllowUnsafe: cfg.AllowUnsafe,
	}
	name, address := scheme(cfg.DatabaseURL), cfg.DatabaseURL
	if cfg.MySQLDSN != "" {
		name, address = sqldb.SchemeDSN, cfg.MySQLDSN
	}
	driver, _ := sqldb.DriverOf(name) // Validate has found it
	return driver.Open(ctx, address, pool, cfg.Now)
}
