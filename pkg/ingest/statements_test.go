package ingest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// meteredStore is a Store that counts what the application asks of it, by the call's name.
// Begin, commit and what the store adds of its own count in no name.
type meteredStore struct {
	taskstate.Store
	calls, statements map[string]int
	mu                *sync.Mutex
	takes             time.Duration // each call
}

// called counts a call, which takes its time.
func (s meteredStore) called(call string) {
	s.count(s.calls, call)
	if s.takes > 0 {
		<-time.After(s.takes)
	}
}

func (s meteredStore) count(counts map[string]int, call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts[call]++
}

func (s meteredStore) reset() {
	clear(s.calls)
	clear(s.statements)
}

// meteredTx counts statements under its call's name.
type meteredTx struct {
	taskstate.Tx
	count func()
}

func (t meteredTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.count()
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t meteredTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.count()
	return t.Tx.QueryContext(ctx, query, args...)
}

func (t meteredTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.count()
	return t.Tx.QueryRowContext(ctx, query, args...)
}

func (s meteredStore) tx(call string, tx taskstate.Tx) taskstate.Tx {
	return meteredTx{tx, func() { s.count(s.statements, call) }}
}

func (s meteredStore) Read(ctx context.Context, f taskstate.ReadFunc) error {
	s.called("read")
	return s.Store.Read(ctx, func(ctx context.Context, db taskstate.Tx) error { return f(ctx, s.tx("read", db)) })
}

func (s meteredStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	s.called("tx")
	return s.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		return f(ctx, s.tx("tx", tx), m)
	})
}

func (s meteredStore) WithClaims(ctx context.Context, claims []taskstate.ClaimedTask, f taskstate.ClaimsFunc) error {
	s.called("hold")
	return s.Store.WithClaims(ctx, claims, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, held []bool) error {
		return f(ctx, s.tx("hold", tx), m, held)
	})
}

// run processes an upload once, up to its finish, and counts.
func (s meteredStore) run(w *world, a Accepted) (calls, statements map[string]int) {
	w.t.Helper()
	s.reset()
	job, answer := w.claim(a.Task.ID)
	require.Equal(w.t, taskstate.AnswerClaimed, answer)
	kind := w.metered(s)
	res := kind.Run(w.t.Context(), job)
	require.NoError(w.t, res.Err)
	_, err := w.finish(w.t.Context(), job, res)
	require.NoError(w.t, err)
	return s.calls, s.statements
}

// metered is the world's worker over a store that counts.
func (w *world) metered(s meteredStore) *Worker {
	w.t.Helper()
	deps := w.app.d
	deps.Store = s
	cfg := w.app.cfg
	cfg.EmbedParallel = 1
	app, err := New(deps, cfg)
	require.NoError(w.t, err)
	kind, err := app.Kind()
	require.NoError(w.t, err)
	return kind
}

// What a document costs the database: not a statement more than these, from its claim to its finish.
func TestStatementsOfADocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.embed.batch = 64
	s := meteredStore{Store: w.store, calls: map[string]int{}, statements: map[string]int{}, mu: &sync.Mutex{}}
	s.run(w, w.upload(lines(20, 1))) // onTransition says which model the base has

	// One batch of everything.
	a := w.upload(lines(20, 2))
	calls, statements := s.run(w, a)
	require.Equal(t, map[string]int{"read": 3, "tx": 1, "hold": 1}, calls, "its work, the ledger, its rows read back; ledger; rows")
	require.Equal(t, map[string]int{"read": 3, "tx": 1, "hold": 4}, statements, "documents, versions, rows, what they are made of")

	// A second version also reads what is visible.
	again := w.accept(Upload{File: w.receive("a.txt", lines(20, 2)+"one more\n"), DocumentID: a.Document.ID})
	calls, statements = s.run(w, again)
	require.Equal(t, map[string]int{"read": 5, "tx": 1, "hold": 1}, calls)
	require.Equal(t, map[string]int{"read": 5, "tx": 1, "hold": 4}, statements)

	// A long one: five batches of embeddings, and as many of vectors less the last are marked.
	calls, statements = s.run(w, w.upload(lines(1000, 3)))
	const batches, rowTx, marks = 16, 2, 4
	require.Equal(t, map[string]int{"read": 4, "tx": batches, "hold": rowTx + marks}, calls, "the ledger is asked twice")
	require.Equal(t, map[string]int{"read": 4, "tx": batches, "hold": 3*rowTx + 1 + marks}, statements, fmt.Sprint(calls))
}

// Documents in work side by side share their looks, the embedding cache's commits and the transactions of their rows.
// In the bubble's time all that can come while a call is under way do, so no chance decides how many share.
func TestStatementsOfDocumentsSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, worldOptions{})
		w.embed.batch = 64
		s := meteredStore{Store: w.store, calls: map[string]int{}, statements: map[string]int{}, mu: &sync.Mutex{}}
		s.run(w, w.upload(lines(20, 1))) // onTransition says which model the base has
		const documents = 16
		s.takes = time.Second
		kind := w.metered(s)
		jobs := make([]taskrun.Job, documents)
		for i := range jobs {
			a := w.upload(lines(20, uint64(10+i)))
			jobs[i], _ = w.claim(a.Task.ID)
		}
		s.reset()
		results := make([]taskrun.Result, documents)
		var wg sync.WaitGroup
		for i, job := range jobs {
			wg.Go(func() { results[i] = kind.Run(t.Context(), job) })
		}
		wg.Wait()
		for i, res := range results {
			require.NoError(t, res.Err)
			_, err := w.finish(t.Context(), jobs[i], res)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusSucceeded, w.task(jobs[i].Task.ID).Status)
		}
		t.Log(s.calls, s.statements)
		// Alone they would be 16 of each, 48 reads and 64 statements of holders.
		require.LessOrEqual(t, s.calls["hold"], 8, "%v", s.calls)
		require.LessOrEqual(t, s.calls["tx"], 12, "%v", s.calls)
		require.LessOrEqual(t, s.calls["read"], 28, "%v", s.calls)
		require.LessOrEqual(t, s.statements["hold"], 32, "%v", s.statements)
	})
}
