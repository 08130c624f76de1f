package labserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

func redisClass() class {
	return class{
		prepare: redisPrepare, commands: redisCommands, probe: redisProbe,
		url: func(s *Server, db string) string {
			scheme := "redis"
			if s.opts.TLS {
				scheme = "rediss"
			}
			if db == "" {
				db = "0"
			}
			return fmt.Sprintf("%s://%s/%s", scheme, s.Addr, db)
		},
		stop:  syscall.SIGTERM,
		count: redisCount, counters: redisCounters,
	}
}

func redisPrepare(_ context.Context, s *Server) error {
	if err := os.MkdirAll(s.data(), 0o755); err != nil {
		return err
	}
	if !s.opts.TLS {
		return nil
	}
	s.CAFile = filepath.Join(s.Dir, "ca.pem")
	if _, err := os.Stat(s.CAFile); err == nil {
		return nil
	}
	return writeCertificates(s.Dir)
}

func redisCommands(s *Server) ([]child.Command, error) {
	server, err := installed.Program("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	databases := max(16, s.opts.Databases)
	args := []string{
		"--bind", loopback, "--dir", s.data(), "--databases", strconv.Itoa(databases), "--save", "",
		"--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--daemonize", "no",
		"--enable-debug-command", "local",
	}
	if s.opts.TLS {
		args = append(args, "--port", "0", "--tls-port", strconv.Itoa(s.Port), "--tls-auth-clients", "no",
			"--tls-cert-file", filepath.Join(s.Dir, "server.pem"), "--tls-key-file", filepath.Join(s.Dir, "server.key"),
			"--tls-ca-cert-file", s.CAFile)
	} else {
		args = append(args, "--port", strconv.Itoa(s.Port))
	}
	return []child.Command{{Path: server, Args: append(args, s.opts.Args...), Dir: s.Dir}}, nil
}

func redisProbe(ctx context.Context, s *Server) error {
	answer, err := s.RedisCommand(ctx, "PING")
	if err == nil && answer != "+PONG" {
		err = fmt.Errorf("answers %q to PING", answer)
	}
	return err
}

// RedisCommand sends one command to a Redis or Sentinel server on a connection of its own
// and returns the first line of the answer as it is on the wire ("+OK", ":1", "$-1", "-ERR …").
func (s *Server) RedisCommand(ctx context.Context, args ...string) (string, error) {
	conn, err := s.sendRedis(ctx, args...)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // one command, its answer was read
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// sendRedis sends one command on a connection of its own, which the caller reads and closes.
func (s *Server) sendRedis(ctx context.Context, args ...string) (net.Conn, error) {
	conn, err := s.dialRedis(ctx)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if err == nil {
		_, err = conn.Write([]byte(b.String()))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (s *Server) dialRedis(ctx context.Context) (net.Conn, error) {
	if !s.opts.TLS {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.Addr)
	}
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", s.CAFile)
	}
	d := tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return d.DialContext(ctx, "tcp", s.Addr)
}

// SentinelMaster is the name under which the sentinels of a SentinelSet watch their primary.
const SentinelMaster = "millweir"

// SentinelSet is one primary, one replica and the sentinels that watch them.
type SentinelSet struct {
	Primary   *Server // the first primary; after a failover it is the replica
	Replica   *Server
	Sentinels []*Server
}

// StartSentinel starts a set with n sentinels (1–3; the quorum is the majority).
// A primary that does not answer for 2 s is replaced: less, and a machine that stalls would replace one that lives.
// It returns when the sentinels know the replica and each other.
func StartSentinel(ctx context.Context, n int) (*SentinelSet, error) {
	if n < 1 || n > 3 {
		return nil, fmt.Errorf("%d sentinels: 1 to 3 are possible", n)
	}
	set := &SentinelSet{}
	err := set.start(ctx, n)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start sentinel set: %w", err), set.Stop(context.WithoutCancel(ctx)))
	}
	return set, nil
}

func (set *SentinelSet) start(ctx context.Context, n int) (err error) {
	if set.Primary, err = Start(ctx, KindRedis, Options{}); err != nil {
		return err
	}
	replicaOf := fmt.Sprintf("%s %d", loopback, set.Primary.Port)
	set.Replica, err = Start(ctx, KindRedis, Options{Args: []string{"--replicaof", replicaOf, "--repl-diskless-sync-delay", "0"}})
	if err != nil {
		return err
	}
	for range n {
		watch := fmt.Sprintf("sentinel monitor %s %s %d %d", SentinelMaster, loopback, set.Primary.Port, n/2+1)
		s, err := Start(ctx, KindSentinel, Options{Args: []string{watch}})
		if err != nil {
			return err
		}
		set.Sentinels = append(set.Sentinels, s)
	}
	return set.awaitKnown(ctx, n)
}

// awaitKnown waits until every sentinel could order a failover.
func (set *SentinelSet) awaitKnown(ctx context.Context, n int) error {
	return await(ctx, readyTimeout, func(ctx context.Context) error {
		for _, s := range set.Sentinels {
			replicas, err := s.RedisCommand(ctx, "SENTINEL", "REPLICAS", SentinelMaster)
			others, err2 := s.RedisCommand(ctx, "SENTINEL", "SENTINELS", SentinelMaster)
			if err := errors.Join(err, err2); err != nil || replicas != "*1" || others != fmt.Sprintf("*%d", n-1) {
				return errors.Join(fmt.Errorf("sentinel %s sees %q replicas and %q other sentinels", s.Addr, replicas, others), err)
			}
		}
		return nil
	})
}

// Addrs are the addresses of the sentinels.
func (set *SentinelSet) Addrs() []string {
	addrs := make([]string, 0, len(set.Sentinels))
	for _, s := range set.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// URL is redis-sentinel://host:port,host:port/0#millweir, as Lettuce writes it.
func (set *SentinelSet) URL() string {
	return fmt.Sprintf("redis-sentinel://%s/0#%s", strings.Join(set.Addrs(), ","), SentinelMaster)
}

// Stop ends all of the set.
func (set *SentinelSet) Stop(ctx context.Context) error {
	var errs []error
	for _, s := range set.servers() {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(errs...)
}

// servers are those that were started, sentinels first.
func (set *SentinelSet) servers() []*Server {
	return started(append(slices.Clone(set.Sentinels), set.Replica, set.Primary))
}

// sentinelClass expects the "sentinel monitor …" line as its only argument.
func sentinelClass() class {
	c := redisClass()
	c.prepare = func(_ context.Context, s *Server) error {
		conf := filepath.Join(s.Dir, "sentinel.conf")
		if _, err := os.Stat(conf); err == nil {
			return nil // it keeps what it learned there
		}
		if len(s.opts.Args) != 1 {
			return errors.New("a sentinel needs its monitor line: use StartSentinel")
		}
		lines := []string{
			fmt.Sprintf("port %d", s.Port), "bind " + loopback, "dir " + s.Dir, s.opts.Args[0],
			"sentinel down-after-milliseconds " + SentinelMaster + " 2000",
			"sentinel failover-timeout " + SentinelMaster + " 5000",
		}
		return os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	c.commands = func(s *Server) ([]child.Command, error) {
		server, err := installed.Program("redis-sentinel", "redis-sentinel")
		if err != nil {
			return nil, err
		}
		return []child.Command{{Path: server, Args: []string{filepath.Join(s.Dir, "sentinel.conf")}, Dir: s.Dir}}, nil
	}
	return c
}
