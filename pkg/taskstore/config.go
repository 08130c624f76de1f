package taskstore

import (
	"cmp"
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
	default:
		variable, scheme, address := c.address()
		if err := checkAddress(scheme, address); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable, err))
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

// address is the one address that is set, with its variable's name and its scheme.
func (c Config) address() (variable, scheme, address string) {
	if c.MySQLDSN != "" {
		return "MYSQL_DSN", sqldb.SchemeDSN, c.MySQLDSN
	}
	scheme, _, _ = strings.Cut(c.DatabaseURL, ":")
	return "DATABASE_URL", scheme, c.DatabaseURL
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
	silence, most := cmp.Or(cfg.Silence, defaultSilence), cmp.Or(cfg.MaxOpen, defaultMaxOpen)
	pool := sqldb.PoolSize{
		MaxOpen: most, MaxIdle: most, Silence: silence, IdleTime: time.Duration(float64(silence) * idleShare), AllowUnsafe: cfg.AllowUnsafe,
	}
	_, scheme, address := cfg.address()
	driver, _ := sqldb.DriverOf(scheme) // Validate has found it
	b, err := driver.Open(ctx, address, pool, cfg.Now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
	}
	s := withColumns(sqldb.New(b, cfg.Timeout), columns)
	s.outbox, s.onEvents = cfg.Outbox, cfg.OnEvents
	return s, nil
}
