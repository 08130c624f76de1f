// Package database opens the database that the settings name. It links MySQL and Postgres; SQLite, which serves one process,
// is linked by the all-in-one (sqldb/dialects).
package database

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/mysql"
	_ "github.com/millweir/millweir/pkg/sqldb/postgres"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/wiring"
)

// retentionEvery is the pause between two passes over events that are of no more use.
const retentionEvery = 10 * time.Minute

// schemaRetry is the pause between two looks for a database that has not been migrated, or does not answer yet.
const schemaRetry = 2 * time.Second

// Settings say where tasks and documents are kept. One of the two addresses is set.
type Settings struct {
	MySQLDSN    process.DSN `envconfig:"MYSQL_DSN" desc:"MySQL or MariaDB in the Go driver's form, user:password@tcp(host:3306)/name"`
	DatabaseURL process.DSN `envconfig:"DATABASE_URL" desc:"mysql:// or postgres://, in the program millweir also sqlite:PATH; wins over MYSQL_DSN"`
	AllowUnsafe bool        `envconfig:"ALLOW_UNSAFE_DURABILITY" default:"false" desc:"use a database whose own crash loses accepted uploads (flush at commit off); otherwise it is refused"`
}

// Validate says that a database is needed, and that its address can be one.
func (s Settings) Validate() error {
	if s.MySQLDSN.Empty() && s.DatabaseURL.Empty() {
		return process.BadSetting("MYSQL_DSN", "is not set, nor is DATABASE_URL: this service keeps its tasks in a database")
	}
	return s.config().Validate()
}

// config is the store's view of the settings; DATABASE_URL wins, so that one variable moves a service to another database.
func (s Settings) config() taskstore.Config {
	cfg := taskstore.Config{MySQLDSN: s.MySQLDSN.Reveal(), DatabaseURL: s.DatabaseURL.Reveal(), AllowUnsafe: s.AllowUnsafe}
	if cfg.DatabaseURL != "" {
		cfg.MySQLDSN = ""
	}
	return cfg
}

// Open opens the database for a command; close it.
func Open(ctx context.Context, s Settings) (*taskstore.Store, error) { return open(ctx, s, s.config()) }

// open checks the settings first.
func open(ctx context.Context, s Settings, cfg taskstore.Config) (*taskstore.Store, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	store, err := taskstore.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return store, nil
}

// Database is a service's database.
type Database struct {
	Store  *taskstore.Store
	Signal *outbox.Signal // rung by commits that wrote events

	env        *process.Env
	schemaGood atomic.Bool
}

// Events say where the events of changed tasks go.
type Events struct{ Topic, Group string }

// Connect opens the database and watches it; changes of tasks write their events, nil: none.
func Connect(ctx context.Context, b *wiring.Base, s Settings, events *Events) (*Database, error) {
	d := &Database{Signal: outbox.NewSignal(), env: b.Env}
	cfg := s.config()
	var writer *outbox.Writer // once the database and so its dialect are known
	if events != nil {
		cfg.OnEvents = d.Signal.Ring
		cfg.Outbox = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, rows []taskstate.Changed) (int, error) {
			return writer.Write(ctx, tx, m, rows)
		}
	}
	store, err := open(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	if events != nil {
		writer = outbox.NewWriter(store.Dialect(), events.Topic, events.Group)
	}
	if !s.MySQLDSN.Empty() && !s.DatabaseURL.Empty() {
		b.Env.Log.Warn("wiring: MYSQL_DSN and DATABASE_URL are both set; DATABASE_URL is used")
	}
	d.Store = store
	b.Later(store.Close)
	b.Env.Ready.Register("database", store.Ping)
	return d, nil
}

// CheckSchema returns nil once the database has this program's schema, and is not too old. It looks until that was so and then no more.
func (d *Database) CheckSchema(ctx context.Context) error {
	if d.schemaGood.Load() {
		return nil
	}
	err := wiring.CheckVersion(ctx, d.Store.ServerVersion)
	if err == nil {
		err = d.Store.CheckSchema(ctx)
	}
	if err == nil {
		d.schemaGood.Store(true)
	}
	return err
}

// WaitForSchema returns true when the database has this program's schema, and false when ctx ends before;
// until then it says what is missing, also to who asks whether the process is ready.
func (d *Database) WaitForSchema(ctx context.Context) bool {
	d.env.Ready.Register("schema", d.CheckSchema)
	said := ""
	for {
		err := d.CheckSchema(ctx)
		if err == nil {
			return true
		}
		if text := err.Error(); text != said {
			said = text
			d.env.Log.Warn("wiring: waiting for the database", slog.Any("error", err))
		}
		if !pause.For(ctx, schemaRetry) {
			return false
		}
	}
}

// Janitor removes events that are of no more use.
func (d *Database) Janitor(topic string, retentionHours int) (process.Service, error) {
	janitor, err := outbox.NewJanitor(outbox.NewStore(d.Store), outbox.JanitorConfig{
		Topic: topic, Retention: time.Duration(retentionHours) * time.Hour, Interval: retentionEvery,
	}, d.env.Log, time.Now)
	if err != nil {
		return nil, err
	}
	return process.Named("janitor of events", janitor), nil
}
