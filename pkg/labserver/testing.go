package labserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	testStartTimeout = 2 * time.Minute
	checkTimeout     = 20 * time.Second
	redisDatabases   = 4096 // one for each test that asks; Redis makes them as they are used
)

// shared is a server of the whole test process.
type shared struct {
	once   sync.Once
	kind   Kind
	opts   Options
	server *Server
	err    error
}

var (
	sharedMariaDB  = &shared{kind: KindMariaDB}
	sharedPostgres = &shared{kind: KindPostgres}
	sharedPGVector = &shared{kind: KindPGVector}
	sharedRedis    = &shared{kind: KindRedis, opts: Options{Databases: redisDatabases}}
	sharedTLS      = &shared{kind: KindRedis, opts: Options{TLS: true, Databases: redisDatabases}}
	sharedChroma   = &shared{kind: KindChroma}
	sharedQdrant   = &shared{kind: KindQdrant}
	sharedModel    = &shared{kind: KindModel}
	sharedKafka    = &shared{kind: KindKafka}
	sharedRabbit   = &shared{kind: KindRabbitMQ}

	redisNext, tlsNext atomic.Int64

	// inMemory is the folder in memory for the files of this process; "": they are on disk. Files of Private servers are always on
	// disk: tests kill these servers and count their fsyncs, and MariaDB makes none for a log in memory.
	inMemory string

	sharedCluster struct {
		once    sync.Once
		cluster *Cluster
		err     error
	}
)

// watched is whether the race detector watches this program.
var watched bool

// Watcher is the function of the one goroutine of this package that lives as long as the process: looks for leaked
// goroutines leave it out (goleak.IgnoreTopFunction).
const Watcher = "github.com/millweir/millweir/pkg/labserver/child.init.func1.1"

// NoLeaks is the check of Main that no goroutine is left but that one.
func NoLeaks() error { return goleak.Find(goleak.IgnoreTopFunction(Watcher)) }

// Main is the whole TestMain of a package that uses this one: it runs the tests, stops the servers and, if all passed,
// runs the checks of what the tests have left, such as NoLeaks; an error of one fails the package.
// The files of tests and of the servers that they share are in memory where there is room.
// Without it the servers still die with the process; only their folders stay until the next run.
func Main(m *testing.M, checks ...func() error) {
	var err error
	if inMemory, err = memoryDir(); err != nil {
		fmt.Fprintln(os.Stderr, err) // the disk is slower, not wrong
	} else if inMemory != "" {
		_ = os.Setenv("TMPDIR", inMemory)
	}
	code := m.Run() // the testing package keeps it
	endShared()
	if code != 0 {
		return // what failed may have left anything
	}
	for _, check := range checks {
		// What a test has ended may still be on its way out, on a busy machine for longer than the half second that goleak waits.
		if err := await(context.Background(), checkTimeout, func(context.Context) error { return check() }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // a TestMain has no other way to fail
		}
	}
}

// endShared ends the servers of the whole test process.
func endShared() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	// Kill: the data is thrown away, so an orderly stop is time lost.
	for _, s := range []*shared{sharedMariaDB, sharedPostgres, sharedPGVector, sharedRedis, sharedTLS, sharedChroma, sharedQdrant, sharedModel, sharedKafka, sharedRabbit} {
		if s.server != nil {
			if err := s.server.Kill(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	if c := sharedCluster.cluster; c != nil {
		if err := c.Kill(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	removeTempDirs()
	sweepTemp(reachableTemp())
}

// MariaDB is the MariaDB server of this test process, started by the first caller.
func MariaDB(t testing.TB) *Server { t.Helper(); return sharedMariaDB.get(t) }

// Postgres is the Postgres server of this test process.
func Postgres(t testing.TB) *Server { t.Helper(); return sharedPostgres.get(t) }

// PGVector is the Postgres server of this test process that has the vector extension.
func PGVector(t testing.TB) *Server { t.Helper(); return sharedPGVector.get(t) }

// Redis is the Redis server of this test process.
func Redis(t testing.TB) *Server { t.Helper(); return sharedRedis.get(t) }

// RedisTLS is the Redis server of this test process that speaks TLS only; see Server.CAFile.
func RedisTLS(t testing.TB) *Server { t.Helper(); return sharedTLS.get(t) }

// Chroma is the Chroma server of this test process; tests make collections with names of their own.
func Chroma(t testing.TB) *Server { t.Helper(); return sharedChroma.get(t) }

// Qdrant is the Qdrant server of this test process; tests make collections with names of their own.
func Qdrant(t testing.TB) *Server { t.Helper(); return sharedQdrant.get(t) }

// Model is the embedding service of this test process: a real model, all-MiniLM-L6-v2.
func Model(t testing.TB) *Server { t.Helper(); return sharedModel.get(t) }

// Kafka is the Kafka broker of this test process; tests make topics and groups with names of their own.
func Kafka(t testing.TB) *Server { t.Helper(); return sharedKafka.get(t) }

// RabbitMQ is the RabbitMQ broker of this test process.
func RabbitMQ(t testing.TB) *Server { t.Helper(); return sharedRabbit.get(t) }

// Databases returns those of all that a test with nothing of a dialect runs on: every one, but under the race detector MariaDB's alone.
// The detector watches Go code, which is the same on all of them; `make test` runs the test on each without it too.
func Databases[V any](all map[string]V) map[string]V {
	if !watched {
		return all
	}
	one := maps.Clone(all)
	delete(one, "sqlite")
	delete(one, "postgres")
	if len(one) == 0 {
		return all
	}
	return one
}

// MySQLDatabase makes an empty database and returns its DSN; it is dropped after the test.
func MySQLDatabase(t testing.TB) string {
	t.Helper()
	s := MariaDB(t)
	return s.DSN(s.freshDatabase(t))
}

// PostgresDatabase makes an empty database and returns its URL; it is dropped after the test.
func PostgresDatabase(t testing.TB) string {
	t.Helper()
	s := Postgres(t)
	return s.URL(s.freshDatabase(t))
}

// PGVectorDatabase makes an empty database on a Postgres that has the vector extension and returns its URL; it is dropped
// after the test.
func PGVectorDatabase(t testing.TB) string {
	t.Helper()
	s := PGVector(t)
	return s.URL(s.freshDatabase(t))
}

// RedisURL returns the URL of an empty Redis database that no other test of this process has.
// FLUSHDB harms nobody; FLUSHALL, CONFIG and restarts need a server from Private.
func RedisURL(t testing.TB) string {
	t.Helper()
	return Redis(t).freshRedis(t, &redisNext)
}

// RedisTLSURL is RedisURL on the server that speaks TLS, and the file of its CA.
func RedisTLSURL(t testing.TB) (url, caFile string) {
	t.Helper()
	s := RedisTLS(t)
	return s.freshRedis(t, &tlsNext), s.CAFile
}

// Sentinel starts a SentinelSet of n sentinels for one test.
func Sentinel(t testing.TB, n int) *SentinelSet {
	t.Helper()
	return private(t, func(ctx context.Context) (*SentinelSet, error) { return StartSentinel(ctx, n) }, (*SentinelSet).servers)
}

// RedisCluster is the Redis Cluster of this test process: three masters, no replica. Its data is shared by all tests:
// they use keys of their own.
func RedisCluster(t testing.TB) *Cluster {
	t.Helper()
	NeedServers(t)
	sharedCluster.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testStartTimeout)
		defer cancel()
		sharedCluster.cluster, sharedCluster.err = StartCluster(ctx, false)
	})
	if sharedCluster.err != nil {
		t.Fatal(sharedCluster.err)
	}
	return sharedCluster.cluster
}

// PrivateCluster starts a cluster with one replica for one test alone.
func PrivateCluster(t testing.TB) *Cluster {
	t.Helper()
	return private(t, func(ctx context.Context) (*Cluster, error) { return StartCluster(ctx, true) }, (*Cluster).nodes)
}

// Private starts a server for one test alone, which may stop, kill, pause and restart it.
func Private(t testing.TB, kind Kind, opts Options) *Server {
	t.Helper()
	return private(t, func(ctx context.Context) (*Server, error) { return Start(ctx, kind, opts) }, func(s *Server) []*Server { return []*Server{s} })
}

// private starts servers for one test alone, and ends them after it.
func private[T any](t testing.TB, start func(ctx context.Context) (T, error), servers func(T) []*Server) T {
	t.Helper()
	NeedServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), testStartTimeout)
	defer cancel()
	s, err := start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endForTest(t, servers(s)...) })
	return s
}

// endForTest kills and removes: an orderly stop of data that is thrown away is time lost.
func endForTest(t testing.TB, servers ...*Server) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, s := range servers {
		if err := s.Kill(ctx); err != nil {
			t.Errorf("end of %s: %v", s.Kind, err)
		}
		if strings.Contains(s.Dir, tempPrefix) {
			_ = os.RemoveAll(s.Dir) // the next run sweeps
		}
	}
}

func (sh *shared) get(t testing.TB) *Server {
	t.Helper()
	NeedServers(t)
	sh.once.Do(func() {
		// Not the test's context: the server outlives this test.
		ctx, cancel := context.WithTimeout(context.Background(), testStartTimeout)
		defer cancel()
		opts := sh.opts
		if inMemory != "" {
			if opts.Dir, sh.err = tempDirIn(inMemory, string(sh.kind)); sh.err != nil {
				return
			}
		}
		sh.server, sh.err = Start(ctx, sh.kind, opts)
	})
	if sh.err != nil {
		t.Fatal(sh.err)
	}
	return sh.server
}

// NeedServers skips under -short, with a line that says so; never in CI.
func NeedServers(t testing.TB) {
	t.Helper()
	if !testing.Short() {
		return
	}
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
		return
	}
	t.Skip("needs a real server: left out by -short (make test runs it)")
}

func (s *Server) freshDatabase(t testing.TB) string {
	t.Helper()
	name := "t_" + strings.ToLower(rand.Text()[:16])
	if err := s.SQL(t.Context(), "", "CREATE DATABASE "+name); err != nil {
		t.Fatalf("make database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if !s.Running() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		drop := "DROP DATABASE " + name
		if s.Kind != KindMariaDB {
			drop += " WITH (FORCE)" // pools of the test may still be open
		}
		if err := s.SQL(ctx, "", drop); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return name
}

func (s *Server) freshRedis(t testing.TB, next *atomic.Int64) string {
	t.Helper()
	n := next.Add(1)
	if n >= redisDatabases {
		t.Fatalf("more than %d tests of one process asked for a Redis database", redisDatabases-1)
	}
	return s.URL(strconv.FormatInt(n, 10))
}

func removeTempDirs() {
	held.Lock()
	defer held.Unlock()
	var errs []error
	for _, d := range held.dirs {
		errs = append(errs, os.RemoveAll(d))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
