package pgvector_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/pgvector"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

// calls are one of each kind on a base of two values.
func calls(ctx context.Context, s *pgvector.Store, base string) map[string]func() error {
	return map[string]func() error{
		"upsert": func() error { return s.Upsert(ctx, base, []ingest.Vector{vectortest.Row(1, "v", 1, 0)}) },
		"delete": func() error { return s.Delete(ctx, base, []string{vectortest.ID(2)}) },
		"query":  func() error { _, err := s.Query(ctx, base, []float32{1, 0}, 1, nil); return err },
		"get":    func() error { _, err := s.Get(ctx, base, []string{vectortest.ID(1)}, false); return err },
		"list":   func() error { _, err := s.List(ctx, base, 0, 1); return err },
		"drop":   func() error { return s.Drop(ctx, base+"-other") },
		"ping":   func() error { return s.Ping(ctx) },
	}
}

// requireTransient wants a failure that a later attempt may cure, and its remedy.
func requireTransient(t *testing.T, err error, remedy string) *ingest.Failure {
	t.Helper()
	var f *ingest.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, ingest.CodeVector, f.Code, f.Error())
	require.False(t, f.Permanent || f.Suspend || f.Throttled)
	require.Contains(t, f.Remedy, remedy, f.Error())
	return f
}

// as is the address of a database with another user.
func as(t *testing.T, address, user, params string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.User, u.RawQuery = url.UserPassword(user, "p4ss/w0rd"), u.RawQuery+params
	return u.String()
}

func databaseOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return u.Path[1:]
}

func admin(t *testing.T, address, statements string) {
	t.Helper()
	require.NoError(t, labserver.PGVector(t).SQL(t.Context(), databaseOf(t, address), statements))
}

// What Postgres says decides whether a later attempt may cure it, and whether one is made at once.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code      string
		retry     bool
		permanent bool
		remedy    string
	}{
		"connection lost":      {code: "08006", retry: true, remedy: "could not be reached"},
		"server starting":      {code: "57P03", retry: true, remedy: "could not be reached"},
		"server stops":         {code: "57P01", retry: true, remedy: "could not be reached"},
		"too many connections": {code: "53300", retry: true, remedy: "max_connections"},
		"disk full":            {code: "53100", remedy: "disk space"},
		"out of memory":        {code: "53200", remedy: "memory"},
		"standby":              {code: "25006", remedy: "primary"},
		"deadlock":             {code: "40P01", retry: true, remedy: "could not be reached"},
		"serialization":        {code: "40001", retry: true, remedy: "could not be reached"},
		"lock wait":            {code: "55P03", retry: true, remedy: "could not be reached"},
		"too slow":             {code: "57014", remedy: "could not be reached"},
		"wrong password":       {code: "28P01", remedy: "check PGVECTOR_URL"},
		"no database":          {code: "3D000", remedy: "check PGVECTOR_URL"},
		"no right":             {code: "42501", remedy: "lacks a right"},
		"damaged":              {code: "XX001", remedy: "could not be reached"},
		"bad text":             {code: "22021", permanent: true, remedy: "refuses these rows"},
		"too long":             {code: "54000", permanent: true, remedy: "refuses these rows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cause := fmt.Errorf("write: %w", &pgconn.PgError{Code: c.code, Message: "words of the server"})
			require.Equal(t, c.retry, pgvector.IsRetryable(cause))
			f := ingest.AsFailure(pgvector.Failure(t.Context(), "upsert", cause))
			require.ErrorContains(t, f, "pgvector: upsert: write: : words of the server (SQLSTATE "+c.code+")")
			require.Equal(t, c.permanent, f.Permanent)
			require.Contains(t, f.Remedy, c.remedy)
			want := ingest.CodeVector
			if c.permanent {
				want = ingest.CodeVectorRejected
			}
			require.Equal(t, want, f.Code)
		})
	}
}

func TestRefusedConnectionIsNamed(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // nobody listens there
	store := newStore(t, "postgres://user:p4ss%2Fw0rd@"+addr+"/db?sslmode=disable", nil)
	for name, call := range calls(t.Context(), store, "base") {
		f := requireTransient(t, call(), "could not be reached")
		require.ErrorContains(t, f, "pgvector: "+name+": ")
		require.ErrorContains(t, f, "dial tcp "+addr+": connect: connection refused")
		require.NotContains(t, f.Error(), "w0rd")
	}
}

func TestValidateNamesEverySetting(t *testing.T) {
	t.Parallel()
	err := pgvector.Config{URL: "postgres://u:p4ss[w0rd@h:port/db", Timeout: time.Millisecond}.Validate()
	require.ErrorContains(t, err, "PGVECTOR_URL: ")
	require.ErrorContains(t, err, "PGVECTOR_TIMEOUT: ")
	require.NotContains(t, err.Error(), "w0rd")
	require.ErrorContains(t, pgvector.Config{Timeout: time.Minute}.Validate(), "PGVECTOR_URL: is not set")
	require.ErrorContains(t, pgvector.Config{URL: "postgres://h/db?pool_max_conns=1", Timeout: time.Minute}.Validate(), "pool_max_conns=1")
	require.NoError(t, pgvector.Config{URL: "postgres://h/db?pool_max_conns=2", Timeout: time.Minute}.Validate())
	require.NotContains(t, fmt.Sprintf("%+v", pgvector.Config{URL: "postgres://u:s3cret@h/db"}), "s3cret")
}

// From here on: a real server.

// Writers go on while the server is killed and started again; what was acknowledged is there, and all is written in the end.
func TestServerKilledUnderWriters(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindPGVector, labserver.Options{Database: "vectors"})
	store, base, ctx := newStore(t, server.URL(""), nil), vectortest.Base(t), t.Context()
	const writers, each = 4, 25
	var group sync.WaitGroup
	var mu sync.Mutex
	kept, failed := map[string]bool{}, 0
	begun, again := make(chan struct{}, writers*each), make(chan struct{})
	for w := range writers {
		group.Go(func() {
			for n := range each {
				rows := vectortest.RandomRows(1000*w+n, 1000*w+n+1, 32, "v")
				begun <- struct{}{}
				for store.Upsert(ctx, base, rows) != nil {
					mu.Lock()
					failed++
					mu.Unlock()
					<-again // the server is back
				}
				mu.Lock()
				kept[rows[0].ID] = true
				mu.Unlock()
				if n == each/2 {
					<-again // so that the server goes away under writers that are not done
				}
			}
		})
	}
	for range writers * each / 2 {
		<-begun
	}
	require.NoError(t, server.Kill(ctx))
	mu.Lock()
	acknowledged := len(kept)
	mu.Unlock()
	require.Less(t, acknowledged, writers*each)
	f := requireTransient(t, store.Upsert(ctx, base, vectortest.RandomRows(99, 100, 32, "v")), "could not be reached")
	require.ErrorContains(t, f, "connect")
	require.NoError(t, server.Restart(ctx))
	close(again)
	group.Wait()
	ids, err := store.List(ctx, base, 0, writers*each+1)
	require.NoError(t, err)
	require.Len(t, ids, writers*each)
	for _, id := range ids {
		require.True(t, kept[id])
	}
}

// A server that does not answer holds nobody up for longer than the longest time of a statement.
func TestPausedServer(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindPGVector, labserver.Options{Database: "vectors"})
	store, base, ctx := newStore(t, server.URL(""), func(c *pgvector.Config) { c.Timeout = time.Second }), vectortest.Base(t), t.Context()
	require.NoError(t, store.Ping(ctx))
	require.NoError(t, store.Upsert(ctx, base, []ingest.Vector{vectortest.Row(1, "v", 1, 0)}))
	require.NoError(t, server.Pause())
	for name, call := range calls(ctx, store, base) {
		require.ErrorIs(t, requireTransient(t, call(), ""), context.DeadlineExceeded, name)
	}
	short, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { _, err := store.Query(short, base, []float32{1, 0}, 1, nil); done <- err }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, server.Continue())
	for name, call := range calls(ctx, store, base) {
		require.NoError(t, call(), name)
	}
}

// tableLock is a base's table that a transaction has for itself.
type tableLock struct {
	t    *testing.T
	conn *pgx.Conn
	tx   pgx.Tx
}

func lockTable(t *testing.T, address, base string) tableLock {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+pgvector.TableName(base)+" IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	return tableLock{t, conn, tx}
}

// waitedFor waits until so many statements wait for locks.
func (l tableLock) waitedFor(n int) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		var waiting int
		err := l.conn.QueryRow(l.t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting)
		return err == nil && waiting == n
	}, time.Minute, 5*time.Millisecond)
}

// While writers wait for a lock, searches of other bases go on; when all connections are in use, a call says so.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	store, held, other := newStore(t, address+"&pool_max_conns=2", nil), vectortest.Base(t), vectortest.Base(t)
	ctx := t.Context()
	for _, base := range []string{held, other} {
		require.NoError(t, store.Upsert(ctx, base, []ingest.Vector{vectortest.Row(1, "v", 1, 0)}))
	}
	lock := lockTable(t, address, held)

	var group sync.WaitGroup
	var writer, reader error
	group.Go(func() { writer = store.Upsert(ctx, held, []ingest.Vector{vectortest.Row(2, "v", 1, 0)}) })
	lock.waitedFor(1)
	_, err := store.Query(ctx, other, []float32{1, 0}, 1, nil)
	require.NoError(t, err, "a connection is left for searches")
	group.Go(func() { _, reader = store.Query(ctx, held, []float32{1, 0}, 1, nil) })
	lock.waitedFor(2)
	short, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, store.Upsert(short, other, []ingest.Vector{vectortest.Row(2, "v", 1, 0)}), context.Canceled, "who waits for a place can leave")
	store.SetTimeout(50 * time.Millisecond)
	_, err = store.Query(ctx, other, []float32{1, 0}, 1, nil)
	requireTransient(t, err, "pool_max_conns")
	require.ErrorContains(t, err, "all 2 are in use")
	store.SetTimeout(time.Minute)
	require.NoError(t, lock.tx.Rollback(ctx))
	group.Wait()
	require.NoError(t, writer)
	require.NoError(t, reader)
	_, err = store.Query(ctx, held, []float32{1, 0}, 1, nil)
	require.NoError(t, err)
}

func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	role := "few_" + databaseOf(t, address)
	admin(t, address, "CREATE ROLE "+role+" LOGIN SUPERUSER CONNECTION LIMIT 0")
	t.Cleanup(func() { _ = labserver.PGVector(t).SQL(context.Background(), "", "DROP ROLE "+role) })
	admin(t, address, "ALTER ROLE "+role+" NOSUPERUSER")
	f := requireTransient(t, newStore(t, as(t, address, role, ""), nil).Ping(t.Context()), "max_connections")
	require.ErrorContains(t, f, "too many connections")
	require.NotContains(t, f.Error(), "w0rd")
}

// Connections that the server has ended are replaced within the attempt.
func TestEndedSessionsAreReplaced(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	store, base := newStore(t, address, nil), vectortest.Base(t)
	for name, call := range calls(t.Context(), store, base) {
		if name == "ping" {
			continue // which is one try
		}
		require.NoError(t, call(), name)
		admin(t, address, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		require.NoError(t, call(), name)
	}
}

// Nor does a call fail when more connections were ended than it makes tries: the first that is found ended takes the others along.
func TestManyEndedSessionsAreReplaced(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	store, base, ctx := newStore(t, address+"&pool_max_conns=8", nil), vectortest.Base(t), t.Context()
	require.NoError(t, store.Upsert(ctx, base, []ingest.Vector{vectortest.Row(1, "v", 1, 0)}))
	lock := lockTable(t, address, base)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for n := range errs {
		group.Go(func() { _, errs[n] = store.Query(ctx, base, []float32{1, 0}, 1, nil) })
	}
	lock.waitedFor(len(errs))
	require.NoError(t, lock.tx.Rollback(ctx))
	group.Wait()
	require.Equal(t, make([]error, len(errs)), errs)
	_, err := lock.conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	require.NoError(t, err)
	_, err = store.Query(ctx, base, []float32{1, 0}, 1, nil)
	require.NoError(t, err)
}

func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	base := vectortest.Base(t)
	require.NoError(t, newStore(t, address, nil).Upsert(t.Context(), base, []ingest.Vector{vectortest.Row(1, "v", 1, 0)}))
	store := newStore(t, address+"&default_transaction_read_only=on", nil)
	requireTransient(t, store.Ping(t.Context()), "primary")
	requireTransient(t, store.Upsert(t.Context(), base, []ingest.Vector{vectortest.Row(2, "v", 1, 0)}), "primary")
	hits, err := store.Query(t.Context(), base, []float32{1, 0}, 1, nil)
	require.NoError(t, err, "searches go on")
	require.Len(t, hits, 1)
}

// Each right that is missing is named with what gives it.
func TestRightsAreNamed(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	role := "plain_" + databaseOf(t, address)
	admin(t, address, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() {
		_ = labserver.PGVector(t).SQL(context.Background(), databaseOf(t, address), "DROP OWNED BY "+role+"; DROP ROLE "+role)
	})
	store, base := newStore(t, as(t, address, role, ""), nil), vectortest.Base(t)
	row := []ingest.Vector{vectortest.Row(1, "v", 1, 0)}
	for _, step := range []struct{ remedy, cure string }{
		{"run CREATE EXTENSION vector as a superuser", "CREATE EXTENSION vector"},
		{"CREATE SCHEMA millweir_vectors AUTHORIZATION", "CREATE SCHEMA millweir_vectors"},
		{"lacks a right", "ALTER SCHEMA millweir_vectors OWNER TO " + role},
	} {
		requireTransient(t, store.Upsert(t.Context(), base, row), step.remedy)
		admin(t, address, step.cure)
	}
	require.NoError(t, store.Upsert(t.Context(), base, row))
	require.NoError(t, store.Ping(t.Context()))
}

func TestServerWithoutTheExtension(t *testing.T) {
	t.Parallel()
	store := newStore(t, labserver.PostgresDatabase(t), nil)
	requireTransient(t, store.Ping(t.Context()), "Install pgvector 0.8 or later")
	hits, err := store.Query(t.Context(), "base", []float32{1, 0}, 1, nil)
	require.NoError(t, err)
	require.Empty(t, hits)
}

func TestOldExtensionIsRefused(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	store := newStore(t, address, nil)
	for version, good := range map[string]bool{"0.7.4": false, "0.8.0": true, "0.10.1": true, "1.0.0": true, "none": false} {
		admin(t, address, "CREATE EXTENSION IF NOT EXISTS vector; UPDATE pg_extension SET extversion = '"+version+"' WHERE extname = 'vector'")
		if err := store.Ping(t.Context()); good {
			require.NoError(t, err, version)
		} else {
			requireTransient(t, err, "ALTER EXTENSION vector UPDATE")
		}
	}
}

// Workers that begin together in an empty database make extension, schema and table once.
func TestWorkersThatBeginTogether(t *testing.T) {
	t.Parallel()
	address, base := labserver.PGVectorDatabase(t), vectortest.Base(t)
	var group sync.WaitGroup
	errs := make([]error, 12)
	for n := range errs {
		store := newStore(t, address, nil)
		group.Go(func() {
			if errs[n] = store.Ping(t.Context()); errs[n] == nil {
				errs[n] = store.Upsert(t.Context(), base, vectortest.RandomRows(n, n+1, 4, "v"))
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	ids, err := newStore(t, address, nil).List(t.Context(), base, 0, 100)
	require.NoError(t, err)
	require.Len(t, ids, len(errs))
}

func TestCollectionDroppedByAnotherProcess(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	vectortest.Dropped(t, newStore(t, address, nil), newStore(t, address, nil))
}

// Writers of the same rows in any order, and deletes among them, never end in a deadlock.
func TestWritersOfTheSameRows(t *testing.T) {
	t.Parallel()
	store, base, ctx := newStore(t, labserver.PGVectorDatabase(t), nil), vectortest.Base(t), t.Context()
	var group sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for n := range 10 {
				rows := vectortest.RandomRows(0, 60, 8, fmt.Sprintf("v%d-%d", w, n))
				r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
				if errs[w] = store.Upsert(ctx, base, rows); errs[w] != nil {
					return
				}
				if errs[w] = store.Delete(ctx, base, []string{rows[0].ID, rows[1].ID, rows[2].ID, rows[3].ID}); errs[w] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// A row that is held as it is costs no write.
func TestTheSameRowsAgain(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	store, base, ctx := newStore(t, address, nil), vectortest.Base(t), t.Context()
	conn, err := pgx.Connect(ctx, address)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // test
	versions := func() (all []string) {
		rows, _ := conn.Query(ctx, "SELECT xmin::text || ctid::text FROM "+pgvector.TableName(base)+" ORDER BY id")
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return all
	}
	rows := vectortest.RandomRows(0, 20, 8, "v")
	require.NoError(t, store.Upsert(ctx, base, rows))
	before := versions()
	require.NoError(t, store.Upsert(ctx, base, rows))
	require.Equal(t, before, versions())
	rows[3].Values, rows[4].Birth, rows[5].DocumentID = rows[6].Values, "other", "other"
	require.NoError(t, store.Upsert(ctx, base, rows))
	changed := 0
	for i, v := range versions() {
		if v != before[i] {
			changed++
		}
	}
	require.Equal(t, 3, changed)
}

// When the index gives too few, all rows are compared: a search finds k, or all that there are.
func TestTooFewOfTheIndex(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	base, ctx := vectortest.Base(t), t.Context()
	require.NoError(t, newStore(t, address, nil).Upsert(ctx, base, vectortest.RandomRows(0, 900, 8, "many")))
	require.NoError(t, newStore(t, address, nil).Upsert(ctx, base, vectortest.RandomRows(900, 930, 8, "few")))
	// The worst that a planner may choose, and the least that the index may give.
	poor := newStore(t, address+"&enable_seqscan=off&enable_bitmapscan=off&enable_sort=off&hnsw.iterative_scan=off&hnsw.ef_search=1", nil)
	probe := vectortest.RandomRows(5, 6, 8, "q")[0].Values
	hits, err := poor.Query(ctx, base, probe, 20, []string{"few"})
	require.NoError(t, err)
	require.Len(t, hits, 20)
	hits, err = poor.Query(ctx, base, probe, 500, nil)
	require.NoError(t, err)
	require.Len(t, hits, 500)
	require.True(t, slices.IsSortedFunc(hits, func(a, b ingest.Hit) int { return int(b.Score*1e9) - int(a.Score*1e9) }))
}

// Each dimension is stored and found; what Postgres cannot keep is refused.
func TestDimensions(t *testing.T) {
	t.Parallel()
	address := labserver.PGVectorDatabase(t)
	store, ctx := newStore(t, address, nil), t.Context()
	conn, err := pgx.Connect(ctx, address)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // test
	for dim, index := range map[int]string{1: "vector_cosine_ops", 2000: "vector_cosine_ops", 2001: "halfvec_cosine_ops", 4000: "halfvec_cosine_ops", 4001: "", 16000: ""} {
		base := vectortest.Base(t)
		rows := vectortest.RandomRows(0, 30, dim, "v")
		rows[7].Values[0] *= 1e30 // out of the range of a half, and of its own square
		require.NoError(t, store.Upsert(ctx, base, rows))
		for _, row := range rows {
			hits, err := store.Query(ctx, base, row.Values, 1, []string{"v"})
			require.NoError(t, err)
			require.Len(t, hits, 1)
			require.InDelta(t, 1, hits[0].Score, 1e-5)
			if dim > 1 {
				require.Equal(t, row.ID, hits[0].ID)
			}
		}
		var indexes int
		require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM pg_indexes
			WHERE concat('"', schemaname, '"."', tablename, '"') = $1 AND indexdef LIKE concat('%hnsw%', $2::text, '%')`,
			pgvector.TableName(base), index).Scan(&indexes))
		require.Equal(t, index != "", indexes == 1, "dimension %d", dim)
	}
	err = store.Upsert(ctx, vectortest.Base(t), vectortest.RandomRows(0, 1, 16001, "v"))
	require.Equal(t, ingest.CodeVectorRejected, ingest.AsFailure(err).Code)
	require.Contains(t, ingest.AsFailure(err).Remedy, "EMBEDDING_DIMENSIONS")
}

// Postgres cuts a name after 63 bytes: two long ones that differ behind must stay two bases.
func TestLongBaseNames(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t, labserver.PGVectorDatabase(t), nil), t.Context()
	long := vectortest.Base(t) + "-" + vectortest.Base(t) + "-long"
	for i, base := range []string{long + "a", long + "b", `"; DROP SCHEMA millweir_vectors; --`} {
		require.NoError(t, store.Upsert(ctx, base, vectortest.RandomRows(i, i+1, 4, "v")))
		ids, err := store.List(ctx, base, 0, 10)
		require.NoError(t, err)
		require.Equal(t, []string{vectortest.ID(i)}, ids)
	}
}
