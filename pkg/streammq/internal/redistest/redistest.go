// Package redistest gives tests of this module real Redis servers. It needs nothing beside the standard library, so that
// who imports streammq gets no server of ours with it: the servers belong to a process of scripts/redislab, a program of
// the repository's workspace that is built by the first test. They end with it, and it ends with the tests.
package redistest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	startTimeout = 5 * time.Minute // of the slowest wish, and of the build on a machine that is busy
	checkTimeout = 20 * time.Second
	checkPause   = 50 * time.Millisecond
	databases    = 4096 // of the shared server: one for each test that asks
	modulePath   = "scripts/redislab"
)

// lab is the process that has the servers.
type lab struct {
	addr   string
	cmd    *exec.Cmd
	stdin  io.Closer
	folder string
	// A connection for each wish: nothing stays open that a look for leaks would find.
	client *http.Client
}

var (
	running  atomic.Pointer[lab]
	theLab   = sync.OnceValues(startLab)
	shared   = sync.OnceValues(func() (*Server, error) { return Start(context.Background(), Options{Databases: databases}) })
	cluster  = sync.OnceValues(func() (*Cluster, error) { return startCluster(context.Background(), false) })
	lastUsed atomic.Int64
)

// Main is the whole TestMain of a package that uses this one: it runs the tests, stops the servers and, if all passed,
// runs the checks of what the tests have left, such as goleak.Find; an error of one fails the package.
func Main(m *testing.M, checks ...func() error) {
	code := m.Run() // the testing package keeps it
	err := endLab()
	if code != 0 {
		return // what failed may have left anything
	}
	for _, check := range checks {
		err = errors.Join(err, patiently(check))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // a TestMain has no other way to fail
	}
}

// patiently repeats a check that fails: what a test has ended may still be on its way out on a busy machine.
func patiently(check func() error) error {
	deadline := time.Now().Add(checkTimeout)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(checkPause)
	}
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

// Options say how to start a server; the zero value is good.
type Options struct {
	Args      []string // given to redis-server after the lab's own
	Databases int      // 0: 16
}

// Server is one Redis.
type Server struct {
	Addr string // host:port
	Port int
}

// Start starts a server that ends with the tests.
func Start(ctx context.Context, o Options) (*Server, error) {
	a, err := ask(ctx, request{Do: "start", Args: o.Args, Databases: o.Databases})
	if err != nil {
		return nil, err
	}
	return serverAt(a.Addrs[0]), nil
}

// Private starts a server for one test alone, which may stop, kill, pause and restart it.
func Private(t testing.TB, o Options) *Server {
	t.Helper()
	NeedServers(t)
	s := must(Start(t.Context(), o))(t)
	endAfter(t, s)
	return s
}

// RedisURL returns the URL of an empty database that no other test of this process has.
func RedisURL(t testing.TB) string {
	t.Helper()
	NeedServers(t)
	s := must(shared())(t)
	n := lastUsed.Add(1)
	if n >= databases {
		t.Fatalf("more than %d tests of one process asked for a Redis database", databases-1)
	}
	return s.URL(int(n))
}

// Emulator starts the emulated Redis of "millweir dev" for one test and returns its address.
func Emulator(t testing.TB) string {
	t.Helper()
	s := serverAt(must(ask(t.Context(), request{Do: "emulator"}))(t).Addrs[0])
	endAfter(t, s)
	return s.Addr
}

// FastStream is the Python interpreter of an environment with that version of FastStream, which `make deps` installs.
func FastStream(t testing.TB, version string) string {
	t.Helper()
	NeedServers(t)
	return must(ask(t.Context(), request{Do: "python", Version: version}))(t).Program
}

// URL is the address of a database for clients.
func (s *Server) URL(database int) string { return fmt.Sprintf("redis://%s/%d", s.Addr, database) }

// Stop ends the server in its orderly way. The data stays.
func (s *Server) Stop(ctx context.Context) error { return s.order(ctx, "stop") }

// Kill is kill -9, and waits until it is gone.
func (s *Server) Kill(ctx context.Context) error { return s.order(ctx, "kill") }

// Restart stops the server if it runs, starts it on the same port and data, and returns when it answers.
func (s *Server) Restart(ctx context.Context) error { return s.order(ctx, "restart") }

// Pause sends SIGSTOP: connections stay open and nobody answers.
func (s *Server) Pause(ctx context.Context) error { return s.order(ctx, "pause") }

// Continue ends a Pause.
func (s *Server) Continue(ctx context.Context) error { return s.order(ctx, "continue") }

func (s *Server) order(ctx context.Context, what string) error {
	_, err := ask(ctx, request{Do: what, Addr: s.Addr})
	return err
}

// Cluster is a Redis Cluster of three masters that share the slots evenly, in their order.
type Cluster struct {
	Masters []*Server
	// Replica follows Masters[0]; nil without one. After a failover their parts are exchanged.
	Replica *Server

	name string
}

func startCluster(ctx context.Context, replica bool) (*Cluster, error) {
	a, err := ask(ctx, request{Do: "cluster", Replica: replica})
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: a.Addrs[0]}
	c.set(a)
	return c, nil
}

// RedisCluster is the cluster of this test process, without a replica. Its data is shared: tests use keys of their own.
func RedisCluster(t testing.TB) *Cluster {
	t.Helper()
	NeedServers(t)
	return must(cluster())(t)
}

// PrivateCluster starts a cluster with one replica for one test alone.
func PrivateCluster(t testing.TB) *Cluster {
	t.Helper()
	NeedServers(t)
	c := must(startCluster(t.Context(), true))(t)
	endAfter(t, append([]*Server{c.Replica}, c.Masters...)...)
	return c
}

// Addrs are the addresses of all nodes, each enough for a client to find the others.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Masters {
		addrs = append(addrs, s.Addr)
	}
	if c.Replica != nil {
		addrs = append(addrs, c.Replica.Addr)
	}
	return addrs
}

// Synced waits until the replica has what its master had at the call.
func (c *Cluster) Synced(ctx context.Context) error {
	_, err := ask(ctx, request{Do: "synced", Addr: c.name})
	return err
}

// Promote makes the replica the master without asking the others, and waits until they know.
func (c *Cluster) Promote(ctx context.Context) error {
	a, err := ask(ctx, request{Do: "promote", Addr: c.name})
	if err == nil {
		c.set(a)
	}
	return err
}

func (c *Cluster) set(a answer) {
	c.Masters = nil
	for _, addr := range a.Addrs {
		c.Masters = append(c.Masters, serverAt(addr))
	}
	if a.Replica != "" {
		c.Replica = serverAt(a.Replica)
	}
}

func serverAt(addr string) *Server {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return &Server{Addr: addr, Port: n}
}

// must ends the test on an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func endAfter(t testing.TB, servers ...*Server) {
	t.Cleanup(func() {
		for _, s := range servers {
			if err := s.order(context.Background(), "end"); err != nil {
				t.Errorf("end of %s: %v", s.Addr, err)
			}
		}
	})
}

// request and answer are those of the program.
type request struct {
	Do        string
	Addr      string
	Args      []string
	Databases int
	Replica   bool
	Version   string
}

type answer struct {
	Addrs   []string
	Replica string
	Program string
	Error   string
}

func ask(ctx context.Context, q request) (answer, error) {
	l, err := theLab()
	if err != nil {
		return answer{}, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.addr, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	got, err := l.client.Do(post)
	if err != nil {
		return answer{}, fmt.Errorf("lab: %s %s: %w", q.Do, q.Addr, err)
	}
	defer got.Body.Close()
	var a answer
	if err := json.NewDecoder(got.Body).Decode(&a); err != nil {
		return answer{}, fmt.Errorf("lab: %s %s: %w", q.Do, q.Addr, err)
	}
	if a.Error != "" {
		return answer{}, fmt.Errorf("lab: %s %s: %s", q.Do, q.Addr, a.Error) //nolint:err113 // it was a text already
	}
	return a, nil
}

// startLab builds and starts the program.
func startLab() (*lab, error) {
	dir, err := program()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "redislab-")
	if err != nil {
		return nil, err
	}
	l, err := launch(dir, folder)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	running.Store(l)
	return l, nil
}

func launch(dir, folder string) (*lab, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	binary := filepath.Join(folder, "redislab")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", modulePath, err, out)
	}
	l := &lab{folder: folder, cmd: exec.Command(binary)}
	l.client = &http.Client{Timeout: startTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	l.cmd.Stderr = os.Stderr
	stdin, err := l.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	l.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s told no address: %w", modulePath, errors.Join(err, l.end()))
	}
	l.addr = strings.TrimSpace(line)
	return l, nil
}

// program finds the folder of the lab above this package.
func program() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		candidate := filepath.Join(dir, filepath.FromSlash(modulePath))
		if _, err := os.Stat(filepath.Join(candidate, "main.go")); err == nil {
			return candidate, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no %s above %s: tests that need servers run in a clone of the repository (or use -short)", modulePath, at)
		}
	}
}

func (l *lab) end() error {
	err := l.stdin.Close()
	return errors.Join(err, l.cmd.Wait())
}

func endLab() error {
	l := running.Load()
	if l == nil {
		return nil
	}
	return errors.Join(l.end(), os.RemoveAll(l.folder))
}
