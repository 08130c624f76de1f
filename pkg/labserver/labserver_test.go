package labserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

func TestMain(m *testing.M) {
	if os.Getenv("LABSERVER_VICTIM") != "" {
		victim()
	}
	Main(m)
}

func TestSQLServersGiveFreshDatabases(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		server func(testing.TB) *Server
		fresh  func(testing.TB) string
		prefix string
	}{
		{"mariadb", MariaDB, MySQLDatabase, User + ":" + Password + "@tcp(127.0.0.1:"},
		{"postgres", Postgres, PostgresDatabase, "postgres://" + User + ":" + Password + "@127.0.0.1:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := tc.server(t)
			one, two := tc.fresh(t), tc.fresh(t)
			require.NotEqual(t, one, two)
			require.True(t, strings.HasPrefix(one, tc.prefix), one)
			require.Same(t, s, tc.server(t), "one server per process")
			db := one[strings.LastIndex(one, "/")+1:]
			db, _, _ = strings.Cut(db, "?")
			require.NoError(t, s.SQL(t.Context(), db, "CREATE TABLE x (id INT); INSERT INTO x VALUES (1)"))
			err := s.SQL(t.Context(), "", "SELECT * FROM nowhere.x")
			require.Error(t, err, "a failing statement must be an error")
		})
	}
}

func TestServersSurviveKillAndRestart(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KindMariaDB, KindPostgres, KindPGVector, KindRedis, KindChroma, KindQdrant} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := Private(t, kind, Options{})
			ctx := t.Context()
			addr, pid := s.Addr, s.PID()
			require.NotZero(t, pid)

			require.NoError(t, s.Kill(ctx))
			require.False(t, s.Running())
			require.Zero(t, s.PID())
			require.Error(t, s.Ready(ctx))
			require.ErrorIs(t, s.Pause(), ErrNotRunning)

			require.NoError(t, s.Restart(ctx))
			require.Equal(t, addr, s.Addr, "clients come back to the same address")
			require.NotEqual(t, pid, s.PID())
			require.NoError(t, s.Ready(ctx))

			require.NoError(t, s.Pause())
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			require.Error(t, s.Ready(short), "a paused server must not answer")
			require.NoError(t, s.Continue())
			require.NoError(t, s.Ready(ctx))

			require.NoError(t, s.Pause())
			require.NoError(t, s.Stop(ctx), "a paused server must stop too")
			require.NoError(t, s.Stop(ctx), "stopping twice does nothing")
		})
	}
}

// The server that stands in for Qdrant speaks its protocol: Qdrant's own client takes every reply apart, by the models of Qdrant's OpenAPI.
func TestQdrantServesItsOfficialClient(t *testing.T) {
	t.Parallel()
	s := Private(t, KindQdrant, Options{Args: []string{"--api-key", "k3y", "--max-request-mb", "1"}})
	python, err := installed.QdrantPython()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), python, "testdata/official.py", s.URL(""), "k3y").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "all parsed\n", string(out))
}

// A MariaDB that starts removes all temporary tables that it finds in its folder for them; another server that is just
// opening one of those dies of it (SIGSEGV in ha_maria::drop_table, seen with 10.11.19).
func TestStartedMariaDBLeavesTemporaryTablesOfOthers(t *testing.T) {
	t.Parallel()
	one := MariaDB(t)
	foreign := temporaryTable(t, one)
	two := Private(t, KindMariaDB, Options{})
	require.FileExists(t, foreign)

	own := temporaryTable(t, two)
	require.NoError(t, two.Restart(t.Context()))
	require.NoFileExists(t, own, "if it stays, a start removes nothing and this test shows nothing")
}

// temporaryTable puts a file into the server's folder for them, with the name and owner of one of its temporary tables.
func temporaryTable(t *testing.T, s *Server) string {
	t.Helper()
	client, err := installed.Program("mariadb", "mariadb-client")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), client,
		"--no-defaults", "-uroot", "-S", s.socket(), "-NBe", "SELECT @@tmpdir").Output()
	require.NoError(t, err)
	path := filepath.Join(strings.TrimSpace(string(out)), "#sql-temptable-"+rand.Text()+".MAI")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, child.GiveTo(path, "mysql"))
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

func TestRedisDatabasesAreApart(t *testing.T) {
	t.Parallel()
	one, two := RedisURL(t), RedisURL(t)
	require.NotEqual(t, one, two)
	answer, err := Redis(t).RedisCommand(t.Context(), "SELECT", strconv.Itoa(redisDatabases-1))
	require.NoError(t, err)
	require.Equal(t, "+OK", answer)
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	url, ca := RedisTLSURL(t)
	require.True(t, strings.HasPrefix(url, "rediss://127.0.0.1:"), url)
	require.FileExists(t, ca)
	answer, err := RedisTLS(t).RedisCommand(t.Context(), "PING")
	require.NoError(t, err)
	require.Equal(t, "+PONG", answer)
	plain := &Server{Addr: RedisTLS(t).Addr}
	_, err = plain.RedisCommand(t.Context(), "PING")
	require.Error(t, err, "the port must not speak plain text")
}

func TestSentinelPromotesTheReplica(t *testing.T) {
	t.Parallel()
	set := Sentinel(t, 1)
	require.NoError(t, set.Primary.Kill(t.Context()))
	require.Eventually(t, func() bool {
		role, err := set.Replica.RedisCommand(t.Context(), "SET", "k", "v")
		return err == nil && role == "+OK"
	}, 3*time.Minute, 50*time.Millisecond, "the replica must take writes") // a sentinel that was held up for 2 s does nothing for 30 s (its TILT mode)
	require.Equal(t, "redis-sentinel://"+set.Sentinels[0].Addr+"/0#"+SentinelMaster, set.URL())
}

func TestDetachedServerIsFoundAgain(t *testing.T) {
	t.Parallel()
	NeedServers(t)
	dir, err := tempDir("detached")
	require.NoError(t, err)
	opts := Options{Dir: filepath.Join(dir, "redis"), Detached: true}
	s, err := Start(t.Context(), KindRedis, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Kill(context.Background()) })

	opts.Port = s.Port
	found, ok := Attach(KindRedis, opts)
	require.True(t, ok)
	require.Equal(t, s.PID(), found.PID())
	require.NoError(t, found.Ready(t.Context()))
	require.NoError(t, found.Stop(t.Context()))
	require.False(t, s.Running())
	_, ok = Attach(KindRedis, opts)
	require.False(t, ok)
}

func TestTakenPortIsNamed(t *testing.T) {
	t.Parallel()
	NeedServers(t)
	first, err := ReservePorts(rabbitPorts)
	require.NoError(t, err)
	for kind, port := range map[Kind]int{KindRedis: first, KindRabbitMQ: first + rabbitPrometheus} {
		t.Run(string(kind), func(t *testing.T) {
			l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
			require.NoError(t, err)
			defer l.Close() //nolint:errcheck // test
			_, err = Start(t.Context(), kind, Options{Port: first, Dir: t.TempDir()})
			require.ErrorIs(t, err, errTaken)
			require.ErrorContains(t, err, strconv.Itoa(port))
		})
	}
}

// A server of several ports never gets one beside a port that somebody else has: nobody looks for another then.
func TestPortsAreReservedTogether(t *testing.T) {
	t.Parallel()
	first, err := ReservePorts(rabbitPorts)
	require.NoError(t, err)
	require.ErrorIs(t, holdPorts(first+rabbitPorts-1, 1), syscall.EWOULDBLOCK, "the last one is held too")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // test
	taken := l.Addr().(*net.TCPAddr).Port
	require.ErrorIs(t, holdPorts(taken-1, 2), errTaken)
	require.NotErrorIs(t, holdPorts(taken-1, 1), syscall.EWOULDBLOCK, "what was held before the taken one is given back")
}

// Each test process has a temp folder of its own (Main): what one has reserved no other may pick.
func TestPortsAreReservedWhateverTheTempFolder(t *testing.T) { //nolint:paralleltest // it changes the environment
	first, err := ReservePorts(1)
	require.NoError(t, err)
	t.Setenv("TMPDIR", t.TempDir())
	require.ErrorIs(t, holdPorts(first, 1), syscall.EWOULDBLOCK)
}

func TestServerThatDiesShowsItsLog(t *testing.T) {
	t.Parallel()
	NeedServers(t)
	_, err := Start(t.Context(), KindRedis, Options{Args: []string{"--no-such-setting", "1"}})
	require.ErrorIs(t, err, ErrDied)
	require.ErrorContains(t, err, "no-such-setting")
}

// TestServersDieWithTheirProcess kills a process that holds servers and looks whether they are gone.
func TestServersDieWithTheirProcess(t *testing.T) {
	t.Parallel()
	NeedServers(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	kinds := []Kind{KindMariaDB, KindPostgres, KindPGVector, KindRedis, KindChroma, KindQdrant}
	for _, k := range []Kind{KindKafka, KindRabbitMQ} {
		if err := Installed(k); err == nil {
			kinds = append(kinds, k)
		} else {
			t.Logf("without %s, which make test does not install: %v", k, err)
		}
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "LABSERVER_VICTIM="+fmt.Sprint(kinds))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var procs []*child.Process
	for range kinds {
		var p child.Process
		_, err = fmt.Fscanln(out, &p.PID, &p.Start)
		require.NoError(t, err)
		require.False(t, p.Exited())
		procs = append(procs, p.Tree()...)
	}
	require.GreaterOrEqual(t, len(procs), len(kinds))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	for _, p := range procs {
		require.Eventually(t, p.Exited, time.Minute, 20*time.Millisecond, "pid %d outlives its parent", p.PID)
	}
}

func victim() {
	for _, kind := range strings.Fields(strings.Trim(os.Getenv("LABSERVER_VICTIM"), "[]")) {
		s, err := Start(context.Background(), Kind(kind), Options{})
		if err != nil {
			panic(err)
		}
		fmt.Println(s.main().PID, s.main().Start)
	}
	select {}
}

func TestTemplateIsBuiltOnce(t *testing.T) {
	t.Setenv("MILLWEIR_CACHE", t.TempDir()) // not parallel: the environment is the process's
	built := 0
	build := func(_ context.Context, dst string) error {
		built++
		return errors.Join(os.MkdirAll(filepath.Join(dst, "sub"), 0o755), os.WriteFile(filepath.Join(dst, "sub", "f"), []byte("x"), 0o600))
	}
	for range 2 {
		dst := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, template(t.Context(), "t-1", dst, build))
		got, err := os.ReadFile(filepath.Join(dst, "sub", "f"))
		require.NoError(t, err)
		require.Equal(t, "x", string(got))
	}
	require.Equal(t, 1, built)
	require.Error(t, template(t.Context(), "t-2", t.TempDir(), func(context.Context, string) error { return errors.New("no") }))
}
