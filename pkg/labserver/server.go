// Package labserver starts real MariaDB, Redis, Postgres (also with pgvector), Chroma, Kafka and RabbitMQ servers as plain child
// processes on 127.0.0.1, for tests, drills and "make services-up"; and what stands in for two that no registry has, a model and a Qdrant.
//
// It is no part of a product binary (archtest sees to that) and it never skips in silence: a missing server
// program is an error that names the package to install.
// It runs on Linux, as root (each server then runs as its own system user) or as any user.
//
// Tests use one shared server per test process and a database of their own in it:
//
//	func TestMain(m *testing.M) { labserver.Main(m) }
//
//	func TestX(t *testing.T) {
//		dsn := labserver.MySQLDatabase(t)
//	}
//
// A test that stops, kills or pauses its server takes one of its own with Private.
// Servers die with the test process, also when that is killed, and their folders are removed by the next run.
package labserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/pause"
)

// Kind names a server program.
type Kind string

// The kinds of server.
const (
	KindMariaDB  Kind = "mariadb"
	KindRedis    Kind = "redis"
	KindSentinel Kind = "sentinel" // see StartSentinel
	KindPostgres Kind = "postgres"
	KindPGVector Kind = "pgvector" // Postgres 18 with the vector extension
	KindChroma   Kind = "chroma"
	KindQdrant   Kind = "qdrant" // Qdrant's engine behind its REST API, see qdrant.py
	KindModel    Kind = "model"  // a sentence model behind OpenAI's API
	KindKafka    Kind = "kafka"
	KindRabbitMQ Kind = "rabbitmq"
)

// User and Password are the account that every server with accounts gets; it may do everything.
const (
	User     = "millweir"
	Password = "millweir"
)

const (
	readyTimeout = 90 * time.Second // cold start of the slowest (Kafka, RabbitMQ) on a loaded machine, three times over
	stopTimeout  = child.StopTimeout
	pollInterval = 10 * time.Millisecond
	portTimeout  = 10 * time.Second // of a port that is about to become free
	portAttempts = 3                // a chosen port may be taken between the choice and the bind
)

// Errors of this package.
var (
	// ErrDied is wrapped when a server ended before it answered; the text holds the end of its log.
	ErrDied = errors.New("server ended while it was starting")
	// ErrNotRunning is returned when a signal is to go to a server that is not running.
	ErrNotRunning = errors.New("server is not running")

	errTaken = errors.New("port is taken")
)

// Options say how to start a server; the zero value is good for tests.
type Options struct {
	// Dir holds data, configuration and logs and is made if missing.
	// Empty: a new folder that Stop does not remove but the end of the process (or the next run) does.
	Dir string
	// Port is the TCP port on 127.0.0.1; 0 picks a free one, kept over restarts.
	Port int
	// Database is made at the start (MariaDB, Postgres, pgvector); empty: none.
	Database string
	// Args are given to the server program after our own (the last one wins in all of them).
	Args []string
	// Env are variables of the server program beside a small fixed environment (Postgres, pgvector).
	Env []string
	// TLS makes Redis listen with a certificate of a CA made for it (Server.CAFile), and without TLS nowhere.
	TLS bool
	// Detached servers outlive this process; Attach finds them again by their Dir.
	Detached bool
	// Databases is the number of Redis databases; 0: 16.
	Databases int

	rabbit *rabbitPeers // of a node of a RabbitMQ cluster; nil: it is alone
}

// Server is one running or stopped server. Its methods are not safe for concurrent use with each other.
type Server struct {
	Kind Kind
	// Addr is host:port.
	Addr string
	// Port is the TCP port of Addr.
	Port int
	// Dir is where data and logs are.
	Dir string
	// CAFile is the PEM file of the CA that signed a TLS server's certificate; empty without TLS.
	CAFile string

	opts    Options
	class   class
	busPort int              // of a cluster's node
	procs   []*child.Process // in the order of their start; the last one is the server itself

	counting counting
}

// class is what differs between the kinds.
type class struct {
	// prepare makes data folder and configuration, if they are not there yet.
	prepare func(ctx context.Context, s *Server) error
	// commands are the command lines in the order of their start, the server itself last.
	commands func(s *Server) ([]child.Command, error)
	// probe returns nil when the server really serves.
	probe func(ctx context.Context, s *Server) error
	// settle makes accounts and databases, if they are not there yet; nil: nothing to do.
	settle func(ctx context.Context, s *Server) error
	// url is the address for clients with a database name, which may be empty.
	url func(s *Server, database string) string
	// ports is how many ports from Server.Port on are the server's; 0: one.
	ports int
	// stop is the signal of an orderly stop.
	stop syscall.Signal
	// count reads the server's counters by their own names, counters gives them ours; nil: it has none.
	count    func(ctx context.Context, s *Server) (map[string]float64, error)
	counters func(named map[string]float64) Counters
}

// classes is the table of kinds.
func classes() map[Kind]class {
	return map[Kind]class{
		KindMariaDB:  mariadbClass(),
		KindRedis:    redisClass(),
		KindSentinel: sentinelClass(),
		KindPostgres: postgresClass(),
		KindPGVector: pgvectorClass(),
		KindChroma:   chromaClass(),
		KindQdrant:   qdrantClass(),
		KindModel:    modelClass(),
		KindKafka:    kafkaClass(),
		KindRabbitMQ: rabbitClass(),
	}
}

// Installed returns nil when all programs of the kind are there, else an error that wraps installed.ErrMissing.
func Installed(kind Kind) error {
	var err error
	switch kind {
	case KindMariaDB:
		for _, p := range []string{"mariadbd", "mariadb-install-db", "mariadb"} {
			if _, missing := installed.Program(p, "mariadb-server"); missing != nil {
				err = missing
			}
		}
	case KindRedis:
		_, err = installed.Program("redis-server", "redis-server")
	case KindSentinel:
		_, err = installed.Program("redis-sentinel", "redis-sentinel")
	case KindPostgres:
		for _, p := range []string{"postgres", "initdb", "psql"} {
			if _, missing := installed.Postgres(p); missing != nil {
				err = missing
			}
		}
	case KindPGVector:
		_, err = installed.PGVector()
	case KindChroma:
		_, err = installed.Chroma()
	case KindQdrant:
		_, err = installed.QdrantPython()
	case KindModel:
		_, _, err = installed.Model()
	case KindKafka:
		_, err = java(&Server{}, 0)
	case KindRabbitMQ:
		_, err = rabbitCommands(&Server{})
	default:
		err = fmt.Errorf("%q: no such kind of server", kind)
	}
	return err
}

// Start prepares and starts a server and returns when it answers.
// It wraps installed.ErrMissing or ErrDied, or ctx's error; nothing is left running after an error.
func Start(ctx context.Context, kind Kind, opts Options) (*Server, error) {
	c, ok := classes()[kind]
	if !ok {
		return nil, fmt.Errorf("start %q: no such kind of server", kind)
	}
	if opts.Dir == "" {
		dir, err := tempDir(string(kind))
		if err != nil {
			return nil, err
		}
		opts.Dir = dir
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	s := &Server{Kind: kind, Dir: dir, opts: opts, class: c}
	for attempt := 1; ; attempt++ {
		if err := s.choosePort(); err != nil {
			return nil, fmt.Errorf("start %s: %w", kind, err)
		}
		err := s.launch(ctx)
		if err == nil {
			return s, nil
		}
		if opts.Port != 0 || attempt == portAttempts || !errors.Is(err, ErrDied) && !errors.Is(err, errTaken) {
			return nil, fmt.Errorf("start %s on %s: %w", kind, s.Addr, err)
		}
	}
}

// Attach returns the detached server that runs with opts.Dir, or false when there is none.
func Attach(kind Kind, opts Options) (*Server, bool) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, false
	}
	s := &Server{Kind: kind, Dir: dir, opts: opts, class: classes()[kind], Port: opts.Port}
	s.Addr = net.JoinHostPort(loopback, strconv.Itoa(s.Port))
	s.opts.Detached = true
	s.procs = child.ReadPIDs(s.pidFile())
	return s, s.Running()
}

// URL is the address for clients: mysql://, postgres://, redis://, rediss://, http://, amqp:// or host:port (Kafka).
// database "" means the one of Options.Database.
func (s *Server) URL(database string) string {
	if database == "" {
		database = s.opts.Database
	}
	return s.class.url(s, database)
}

// DSN is the data source name of go-sql-driver/mysql for a MariaDB server, and URL for all others.
func (s *Server) DSN(database string) string {
	if s.Kind != KindMariaDB {
		return s.URL(database)
	}
	if database == "" {
		database = s.opts.Database
	}
	return fmt.Sprintf("%s:%s@tcp(%s)/%s?parseTime=true", User, Password, s.Addr, database)
}

// PID is the process id of the server itself, 0 when it is not running.
func (s *Server) PID() int {
	if !s.Running() {
		return 0
	}
	return s.main().PID
}

// Running tells whether the server's process lives (it may be paused, or not answer).
func (s *Server) Running() bool {
	return len(s.procs) > 0 && !s.main().Exited()
}

// Ready asks the server once; nil means that it serves.
func (s *Server) Ready(ctx context.Context) error {
	return s.class.probe(ctx, s)
}

// Stop ends the server in its orderly way and waits; after 30 s it is killed.
// Stopping a stopped server does nothing. The data stays.
func (s *Server) Stop(ctx context.Context) error {
	return s.end(ctx, s.class.stop)
}

// Kill is kill -9 of the server and its children, and waits until they are gone.
func (s *Server) Kill(ctx context.Context) error {
	return s.end(ctx, syscall.SIGKILL)
}

// Restart stops the server if it runs, starts it on the same port and data, and returns when it answers.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("restart %s on %s: %w", s.Kind, s.Addr, err)
	}
	return nil
}

// Pause stops the server and its children: connections stay open, and after it has returned no request is served.
func (s *Server) Pause() error {
	return s.ifRunning(func(p *child.Process) error { return p.StopTree(context.Background()) })
}

// Continue ends a Pause.
func (s *Server) Continue() error {
	return s.ifRunning(func(p *child.Process) error { return p.SignalTree(syscall.SIGCONT) })
}

// LogFile is where the server's output goes.
func (s *Server) LogFile() string { return filepath.Join(s.Dir, string(s.Kind)+".log") }

func (s *Server) pidFile() string { return filepath.Join(s.Dir, "pid") }

func (s *Server) main() *child.Process { return s.procs[len(s.procs)-1] }

func (s *Server) choosePort() error {
	port := s.opts.Port
	if port == 0 {
		var err error
		if port, err = ReservePorts(max(s.class.ports, 1)); err != nil {
			return err
		}
	}
	s.Port, s.Addr = port, net.JoinHostPort(loopback, strconv.Itoa(port))
	return nil
}

// launch starts the processes and waits until the server answers.
func (s *Server) launch(ctx context.Context) error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	if err := s.class.prepare(ctx, s); err != nil {
		return err
	}
	for port := s.Port; port < s.Port+max(s.class.ports, 1); port++ {
		if err := awaitPort(ctx, port); err != nil {
			return err
		}
	}
	err := s.spawn()
	if err == nil {
		err = s.awaitReady(ctx)
	}
	if err == nil && s.class.settle != nil {
		err = s.class.settle(ctx, s)
	}
	if err != nil {
		err = errors.Join(err, s.Kill(context.WithoutCancel(ctx)))
	}
	return err
}

func (s *Server) spawn() error {
	cmds, err := s.class.commands(s)
	if err != nil {
		return err
	}
	s.procs = nil
	for _, c := range cmds {
		p, err := c.Start(s.LogFile(), s.opts.Detached)
		if err != nil {
			return err
		}
		s.procs = append(s.procs, p)
	}
	if s.opts.Detached {
		return child.WritePIDs(s.pidFile(), s.procs)
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		probeCtx, stop := context.WithTimeout(ctx, 5*time.Second)
		err := s.class.probe(probeCtx, s)
		stop()
		if err == nil {
			return nil
		}
		if !s.Running() {
			return fmt.Errorf("%w; end of %s:\n%s", ErrDied, s.LogFile(), child.Tail(s.LogFile(), 15))
		}
		if !pause.For(ctx, pollInterval) {
			return fmt.Errorf("no answer (%w): %w; end of %s:\n%s", err, context.Cause(ctx), s.LogFile(), child.Tail(s.LogFile(), 15))
		}
	}
}

// end signals the server itself, waits for it, and then takes the helpers (epmd) down, in reverse order.
func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	errs := []error{s.counting.end()}
	for i := len(s.procs) - 1; i >= 0; i-- {
		if err := s.procs[i].End(ctx, sig); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.Kind, err))
		}
	}
	if errors.Join(errs...) == nil {
		s.procs = nil
		if s.opts.Detached {
			errs = append(errs, removeIfThere(s.pidFile()))
		}
	}
	return errors.Join(errs...)
}

func (s *Server) ifRunning(do func(main *child.Process) error) error {
	if !s.Running() {
		return fmt.Errorf("signal %s: %w", s.Kind, ErrNotRunning)
	}
	return do(s.main())
}
