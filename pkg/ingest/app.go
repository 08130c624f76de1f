package ingest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	// TypeDocument is the task type that the application works on.
	TypeDocument = "document"
)

// ErrNoWorker says that App.Kind was asked of an App without an extractor, splitter, embedder or vector store.
var ErrNoWorker = errors.New("this process has no extractor: it does not process documents")

//go:embed sql/*.sql
var writeSQL embed.FS

// DetectFunc tells the media type of an upload from its head (at most 64 KiB) and, through r, the whole of its size bytes.
// Errors: *Failure, permanent.
type DetectFunc func(head []byte, r io.ReaderAt, size int64, name string) (mediaType string, err error)

// Config is what an operator sets.
type Config struct {
	MaxUploadBytes int64         // UPLOAD_MAX_BYTES
	MaxAttempts    int           // INGEST_REDIS_MAX_ATTEMPTS: of tasks made from now on
	MaxBacklog     int           // INGEST_MAX_BACKLOG: tasks waiting to run; 0: no limit
	EmbedParallel  int           // embedding calls of one document at the same time
	SpoolDir       string        // where a run keeps the text that it split; empty: the system's temporary folder
	SweepInterval  time.Duration // pause between two looks of the sweeper
	PublishTimeout time.Duration // of the fast path after a commit
}

// NewDefaultConfig holds the defaults of contract §7.
func NewDefaultConfig() Config {
	return Config{
		MaxUploadBytes: 512 << 20, MaxAttempts: 10, MaxBacklog: 0, EmbedParallel: 2,
		SweepInterval: 2 * time.Second, PublishTimeout: 2 * time.Second,
	}
}

// Validate returns every problem, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxUploadBytes > 0, "UPLOAD_MAX_BYTES %d is not positive", c.MaxUploadBytes)
	check(c.MaxAttempts > 0, "INGEST_REDIS_MAX_ATTEMPTS %d is not positive", c.MaxAttempts)
	check(c.MaxBacklog >= 0, "INGEST_MAX_BACKLOG %d is negative", c.MaxBacklog)
	check(c.EmbedParallel >= 1 && c.EmbedParallel <= 64, "embedding calls at the same time: %d is not 1–64", c.EmbedParallel)
	check(c.SweepInterval > 0, "sweep interval %s is not positive", c.SweepInterval)
	check(c.PublishTimeout > 0, "publish timeout %s is not positive", c.PublishTimeout)
	return errors.Join(errs...)
}

// Deps are the parts that an App stands on. Store, Files and Log are always needed.
type Deps struct {
	Store     taskstate.Store
	Publisher ingestq.Publisher // nil: deliveries are left to the sweeps
	Extractor Extractor         // nil in processes that do not process
	Splitter  Splitter          // nil in processes that do not process
	Embedder  Embedder
	Vectors   VectorStore
	Files     *Files
	Detect    DetectFunc // nil in processes that receive nothing
	Policy    taskstate.Policy
	Log       *slog.Logger
	Clock     func() time.Time    // nil: time.Now; for what the database's clock does not judge
	Redact    func(string) string // takes secrets out of error texts; nil: as they are
	// TagEmbed adds to an embedding call's context whose call it is; nil: nothing.
	TagEmbed func(ctx context.Context, taskID string, fence int64, batch string) context.Context
	Changed  func(ids ...string) // told the ids of tasks that this process changed; nil: nobody waits
}

// App is the application. All methods are safe for concurrent use.
type App struct {
	d       Deps
	cfg     Config
	q       sqldb.Queries
	backlog backlogGauge
	accepts *batcher.Batcher[*accepting]
	keys    *batcher.Batcher[*keyChange]
	works   *batcher.Batcher[*workRead]
	looks   *batcher.Batcher[*embeddingRead]
	paid    *batcher.Batcher[*cachePaid]
	rows    *batcher.Batcher[*rowTask]
	holding atomic.Int64        // requests with an idempotency key
	before  atomic.Int64        // runs that have not come to their rows yet
	trouble *telemetry.Repeated // of the sweeper: one line a kind and minute

	unknown unknowns   // uploads whose COMMIT may have happened
	quiet   quietQueue // the queue, when it does not answer

	admission admission

	poke chan struct{} // wakes this process's sweeper: something became due
}

// New checks deps and cfg and loads the statements of the store's dialect.
func New(d Deps, cfg Config) (*App, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.Store == nil || d.Files == nil || d.Log == nil {
		return nil, errors.New("ingest: store, files and log are needed")
	}
	if err := d.Policy.Validate(); err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Redact == nil {
		d.Redact = func(s string) string { return s }
	}
	if d.Changed == nil {
		d.Changed = func(...string) {}
	}
	sub, err := fs.Sub(writeSQL, "sql")
	if err != nil {
		return nil, fmt.Errorf("ingest: statements: %w", err)
	}
	q, err := sqldb.Load(sub, sqldb.Dialect(d.Store.Dialect()))
	if err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	a := &App{d: d, cfg: cfg, q: q, trouble: telemetry.NewRepeated(d.Log, time.Minute, d.Clock), poke: make(chan struct{}, 1)}
	a.quiet.late = make(chan []taskstate.Task, 1)
	shared := batcher.Config{Workers: acceptWorkers, MinConcurrent: acceptMinConcurrent, Most: acceptMost, MaxWait: acceptMaxWait, Split: splitsAccept}
	a.accepts = batcher.New(shared, a.acceptBatch)
	a.batchKeys()
	a.batchEmbeddingCache()
	a.batchWork()
	a.batchRows()
	return a, nil
}

// wakeSweeper makes this process's sweeper look at once; it never blocks.
func (a *App) wakeSweeper() {
	select {
	case a.poke <- struct{}{}:
	default:
	}
}

// lists is a statement with several (@list), expanded from left to right.
func (a *App) lists(name string, sizes ...int) string {
	q := a.q.Get(name)
	for _, n := range sizes {
		q = strings.Replace(q, "(@list)", "(?"+strings.Repeat(", ?", n-1)+")", 1)
	}
	return q
}

// args makes statement arguments of strings.
func args(ids []string) []any {
	out := make([]any, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}

// column reads the only column of all rows of a query, a text.
func column(ctx context.Context, tx taskstate.Tx, query string, params ...any) ([]string, error) {
	rows, err := tx.QueryContext(ctx, query, params...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// read returns what f reads outside a transaction; f may run again, so it keeps nothing of a try that failed.
func read[T any](ctx context.Context, s taskstate.Store, f func(ctx context.Context, db taskstate.Tx) (T, error)) (out T, err error) {
	err = s.Read(ctx, func(ctx context.Context, db taskstate.Tx) (err error) {
		out, err = f(ctx, db)
		return err
	})
	return out, err
}

// readRow reads the only row of a query outside a transaction.
func readRow[T any](ctx context.Context, s taskstate.Store, scan func(scanner) (T, error), query string, params ...any) (T, error) {
	return read(ctx, s, func(ctx context.Context, db taskstate.Tx) (T, error) {
		return scan(db.QueryRowContext(ctx, query, params...))
	})
}

// readColumn reads the only column of a query outside a transaction.
func readColumn(ctx context.Context, s taskstate.Store, query string, params ...any) ([]string, error) {
	return read(ctx, s, func(ctx context.Context, db taskstate.Tx) ([]string, error) {
		return column(ctx, db, query, params...)
	})
}

// flag is a boolean argument that every dialect takes.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
