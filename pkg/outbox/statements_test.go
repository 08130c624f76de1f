package outbox_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// countedTx counts statements.
type countedTx struct {
	taskstate.Tx
	n *atomic.Int64
}

func (c countedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.n.Add(1)
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c countedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	c.n.Add(1)
	return c.Tx.QueryContext(ctx, query, args...)
}

func (c countedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	c.n.Add(1)
	return c.Tx.QueryRowContext(ctx, query, args...)
}

// counted counts the statements and commits of transactions.
type counted struct {
	sqldb.DB
	statements, commits atomic.Int64
}

func (c *counted) Transact(ctx context.Context, f taskstate.ReadFunc, resolved func(ctx context.Context, tx taskstate.Tx) (bool, error)) error {
	c.commits.Add(1)
	c.statements.Add(1) // COMMIT; nothing begins one on MySQL
	return c.DB.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		return f(ctx, countedTx{tx, &c.statements})
	}, resolved)
}

func (c *counted) Read(ctx context.Context, f taskstate.ReadFunc) error {
	return c.DB.Read(ctx, func(ctx context.Context, tx taskstate.Tx) error { return f(ctx, countedTx{tx, &c.statements}) })
}

func TestStatementsOfAnEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		batch               int
		statements, commits float64
	}{"500": {500, 0.02, 0.005}, "20": {20, 0.15, 0.05}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, labserver.MySQLDatabase(t))
			db := &counted{DB: w.tasks}
			w.store = outbox.NewStore(db)
			const n = 10_000
			for range n / 1000 {
				w.insert(many(1000)...)
			}
			b := newBroker()
			b.delay = 2 * time.Millisecond
			stop := w.start(b, func(cfg *outbox.Config, _ *outbox.Deps) {
				cfg.BatchSize, cfg.Interval, cfg.ProbeEvery = c.batch, forever, forever
			})
			eventually(t, "all sent", func() bool { return w.count(outbox.StatusSent) == n })
			stop()
			statements, commits := float64(db.statements.Load())/n, float64(db.commits.Load())/n
			t.Logf("batch %d: %.4f statements and %.4f commits an event", c.batch, statements, commits)
			require.LessOrEqual(t, statements, c.statements)
			require.LessOrEqual(t, commits, c.commits)
		})
	}
}

// A turn reads and changes its own rows only, however many others there are.
func TestTurnReadsByIndex(t *testing.T) {
	t.Parallel()
	w := open(t, labserver.MySQLDatabase(t))
	w.insert(many(3000)...)
	w.exec("UPDATE outbox_event SET status = 'SENT', sent_at = created_at WHERE seq % 10 <> 0")
	rows, err := w.tasks.DB().QueryContext(t.Context(), `EXPLAIN UPDATE outbox_event FORCE INDEX (PRIMARY) SET lease = 'x'
		WHERE (seq IN (1, 2, 3) AND lease IN ('old') AND status IN ('NEW', 'RETRYING')) OR seq IN (4, 5)`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	require.True(t, rows.Next())
	columns, err := rows.Columns()
	require.NoError(t, err)
	values := make([]sql.NullString, len(columns))
	targets := make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	require.NoError(t, rows.Scan(targets...))
	require.NoError(t, rows.Err())
	plan := map[string]string{}
	for i, c := range columns {
		plan[c] = values[i].String
	}
	require.Equal(t, "range", plan["type"], "%v", plan)
	require.Equal(t, "5", plan["rows"], "%v", plan)
}
