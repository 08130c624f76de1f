// Package world is one set of servers, proxies, a fake embedding service and the processes that were started in it.
package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/labserver/commitproxy"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/monitor"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/proxy"
)

const (
	database     = "millweir"
	readyLimit   = 30 * time.Second // for a service on a loaded machine, extractor's cold cache included
	chromaWait   = 30 * time.Second
	closeLimit   = 20 * time.Second
	sentinels    = 3
	firstPort    = 20000 // below the lab's servers and the kernel's outgoing ports
	lastPort     = 25999
	portAttempts = 200
)

// Options say what a world has; without any of its switches it is MariaDB, Redis, Chroma and no embedding service.
type Options struct {
	Name string
	// Env goes to every service, "NAME=value"; it wins over the world's own settings.
	Env []string
	// Postgres takes the place of MariaDB.
	Postgres bool
	// Alone is a world without servers, for `millweir dev`.
	Alone bool
	// Embedder, when set, is the fake embedding service that services are told to use.
	Embedder *embedtest.Options
	// Proxied puts a Proxy between the services and each server; see World.Net. The world's own accesses stay direct.
	Proxied bool
	// CutCommits puts a commitproxy.Proxy between the services and the database; see World.Commits.
	CutCommits bool
	// ChromaHTTP puts an HTTPProxy between the services and Chroma; see World.ChromaHTTP.
	ChromaHTTP bool
	// Evidence writes down what the embedding service and Redis are asked, for the checker; see Audit.World.
	Evidence bool
	// Sentinel makes Redis a primary with a replica and three sentinels; see World.Sentinels.
	Sentinel bool
	// Kafka is a broker with the product's topics, and INGEST_QUEUE=kafka. There is no Redis then, unless BothTransports.
	Kafka bool
	// RabbitMQ is a broker for copies of tasks.
	RabbitMQ bool
	// RabbitNodes makes of it three nodes behind a balancer; see World.RabbitNodes.
	RabbitNodes bool
	// Partitions above 1 is INGEST_STREAM_PARTITIONS.
	Partitions int
	// BothTransports leaves Redis beside Kafka; services are told both addresses, and by the drill which transport to take.
	BothTransports bool
}

// World is servers and processes of one drill.
type World struct {
	Dir     string            // logs, uploads and data
	SQL     *labserver.Server // MariaDB or Postgres
	Redis   *labserver.Server // nil on the Kafka transport
	Kafka   *labserver.Server // nil without Options.Kafka
	Rabbit  *labserver.Server // nil without Options.RabbitMQ, and with RabbitNodes
	Chroma  *labserver.Server
	Embed   *embedtest.Server // nil: the built-in embedder
	DB      *taskstore.Store  // for assertions; nil when Alone
	Stream  *Stream           // for assertions; nil when Alone or without Redis
	Vectors ingest.VectorStore

	Net        *Net                   // nil without Options.Proxied
	Commits    *commitproxy.Proxy     // nil without Options.CutCommits
	ChromaHTTP *proxy.HTTPProxy       // nil without Options.ChromaHTTP
	Sentinels  *labserver.SentinelSet // nil without Options.Sentinel; Redis is its first primary

	RabbitNodes *labserver.RabbitCluster // nil without Options.RabbitNodes
	rabbits     *proxy.Balancer          // in front of them

	bench         *Bench
	opts          Options
	part          int // of a world on another one's servers: names its databases; 0: the servers are its own
	mu            sync.Mutex
	procs         []*proc.Proc
	told          [][]string // settings of each process that runs tasks
	effects, acks *os.File   // nil without Options.Evidence
	stopAcks      func() error
	moves         *os.File // nil without partitions
	probe         *monitor.Probe
	seq           map[string]int
}

// New starts the servers and migrates the database. Close it, also after an error of a drill.
func New(ctx context.Context, b *Bench, opts Options) (*World, error) {
	w := &World{Dir: filepath.Join(b.Run, opts.Name), bench: b, opts: opts, seq: map[string]int{}}
	err := os.RemoveAll(w.Dir)
	if err == nil {
		err = os.MkdirAll(w.Dir, 0o755)
	}
	if err == nil {
		err = w.keepEvidence()
	}
	if err == nil && opts.Embedder != nil {
		w.Embed, err = embedtest.NewServer(*w.opts.Embedder)
	}
	if err == nil && !opts.Alone {
		err = errors.Join(w.startServers(ctx), w.open(ctx), w.startProxies())
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("world %s: %w", opts.Name, err)
	}
	return w, nil
}

// startServers starts all servers side by side.
func (w *World) startServers(ctx context.Context) error {
	kind := labserver.KindMariaDB
	if w.opts.Postgres {
		kind = labserver.KindPostgres
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range []struct {
		to   **labserver.Server
		kind labserver.Kind
		opts labserver.Options
	}{
		{&w.SQL, kind, labserver.Options{Database: database}},
		{&w.Redis, labserver.KindRedis, labserver.Options{}},
		{&w.Kafka, labserver.KindKafka, labserver.Options{}},
		{&w.Rabbit, labserver.KindRabbitMQ, labserver.Options{}},
		{&w.Chroma, labserver.KindChroma, labserver.Options{}},
	} {
		if (s.kind == labserver.KindRabbitMQ && (!w.opts.RabbitMQ || w.opts.RabbitNodes)) || (s.kind == labserver.KindKafka && !w.opts.Kafka) || (s.kind == labserver.KindRedis && !w.hasRedis()) {
			continue
		}
		group.Go(func() (err error) {
			if s.kind == labserver.KindRedis && w.opts.Sentinel {
				w.Sentinels, err = labserver.StartSentinel(ctx, sentinels)
				if err == nil {
					w.Redis = w.Sentinels.Primary
				}
				return err
			}
			*s.to, err = labserver.Start(ctx, s.kind, s.opts)
			return err
		})
	}
	if w.opts.RabbitNodes {
		group.Go(func() error { return w.startRabbitNodes(ctx) })
	}
	return group.Wait()
}

// open makes the direct accesses and the schema.
func (w *World) open(ctx context.Context) (err error) {
	if w.SQL == nil || w.Chroma == nil || (w.Redis == nil && w.hasRedis()) || (w.Kafka == nil && w.opts.Kafka) {
		return nil // startServers has said why
	}
	if err := w.openDatabase(ctx); err != nil {
		return err
	}
	if w.hasRedis() {
		if w.Stream, err = OpenStream(w.redisURL(), w.opts.Partitions); err != nil {
			return err
		}
		if w.acks != nil {
			m := monitor.Monitor{Addr: w.Redis.Addr, DB: w.redisName(), Acks: w.acks}
			if w.moves != nil {
				m.Moves = monitor.NewMoveLog(w.moves)
				w.probe = monitor.StartProbe(w.redisURL(), m.Moves)
			}
			w.stopAcks = m.Record()
		}
	}
	if w.opts.Kafka {
		if err := w.InitKafka(ctx); err != nil {
			return err
		}
	}
	w.Vectors, err = chroma.New(chroma.Config{
		BaseURL: w.Chroma.URL(""), Tenant: "default_tenant", Database: "default_database", Timeout: chromaWait,
	})
	return err
}

// openDatabase opens the database and brings its schema up to date.
func (w *World) openDatabase(ctx context.Context) (err error) {
	if w.DB, err = taskstore.Open(ctx, taskstore.Config{DatabaseURL: w.SQL.URL(w.sqlName()), MaxOpen: 4}); err != nil {
		return err
	}
	if _, err = w.DB.Migrate(ctx); err != nil {
		err = fmt.Errorf("migrate: %w", err)
	}
	return err
}

// Database is the name of the database on its server.
func (w *World) Database() string { return cmp.Or(w.sqlName(), database) }

// LoseDatabase drops the database and puts an empty one with the schema in its place; nobody may be using it.
func (w *World) LoseDatabase(ctx context.Context) error {
	_ = w.DB.Close() // it was only read from
	name := w.Database()
	if err := w.SQL.SQL(ctx, "", "DROP DATABASE "+name+"; CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("drop the database: %w", err)
	}
	return w.openDatabase(ctx)
}

// Close ends all processes and servers; logs stay.
func (w *World) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	w.mu.Lock()
	procs := w.procs
	w.mu.Unlock()
	for _, p := range procs {
		p.Kill()
	}
	if w.DB != nil {
		_ = w.DB.Close() // only read from
	}
	if w.Stream != nil {
		w.Stream.Close()
	}
	if w.Embed != nil {
		w.Embed.Close()
	}
	w.endEvidence()
	for _, p := range w.Net.All() {
		p.Close()
	}
	if w.Commits != nil {
		w.Commits.Close()
	}
	if w.ChromaHTTP != nil {
		w.ChromaHTTP.Close()
	}
	if w.Sentinels != nil {
		for _, s := range append(w.Sentinels.Sentinels, w.Sentinels.Replica) {
			_ = s.Kill(ctx) // its folder is thrown away
		}
	}
	if w.rabbits != nil {
		w.rabbits.Close()
	}
	if w.RabbitNodes != nil {
		_ = w.RabbitNodes.Kill(ctx) // its folders are thrown away
	}
	for _, s := range []*labserver.Server{w.Chroma, w.Redis, w.Kafka, w.Rabbit, w.SQL} {
		if s != nil && w.part == 0 {
			_ = s.Kill(ctx) // its folder is thrown away
		}
	}
}

// NoStrays waits until every process in this world was started by one that should run. Errors: what outlived its parent; the
// context's own.
func (w *World) NoStrays(ctx context.Context) error {
	w.mu.Lock()
	procs := slices.Clone(w.procs)
	w.mu.Unlock()
	return proc.NoStrays(ctx, w.Dir, procs)
}

// Start starts a service of that name without waiting for it. Names of processes are the service's with a number.
func (w *World) Start(service string, env ...string) (*proc.Proc, error) {
	return w.start(service, nil, w.serverEnv(), env)
}

// Rehydrate starts the rehydrator with arguments, without waiting for it.
func (w *World) Rehydrate(args []string, env ...string) (*proc.Proc, error) {
	operator := FreeAddr()
	p, err := w.start("rehydrator", args, w.serverEnv(), append([]string{"OPERATOR_ADDR=" + operator}, env...))
	if err == nil {
		p.Operator = "http://" + operator
	}
	return p, err
}

// Told are the settings of each process that runs tasks.
func (w *World) Told() [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.told)
}

// StartSelf starts this program once more, with arguments.
func (w *World) StartSelf(name string, args ...string) (*proc.Proc, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return w.spawn(name, self, args, os.Environ())
}

// spawn starts a program as the next process of a name; it ends with the world.
func (w *World) spawn(name, path string, args, env []string) (*proc.Proc, error) {
	w.mu.Lock()
	w.seq[name]++
	name = fmt.Sprintf("%s-%d", name, w.seq[name])
	w.mu.Unlock()
	p, err := proc.Spawn(name, path, args, env, w.Dir, filepath.Join(w.Dir, name+".log"))
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.procs = append(w.procs, p)
	return p, nil
}

// StartReady is Start, and waits until the service says that it is ready.
func (w *World) StartReady(ctx context.Context, service string, env ...string) (*proc.Proc, error) {
	p, err := w.Start(service, env...)
	if err != nil {
		return nil, err
	}
	return p, p.AwaitReady(ctx, readyLimit)
}

// StartDev starts `millweir dev` with its data in a folder of the world's; the same addr can be used again and again.
func (w *World) StartDev(ctx context.Context, addr string, env ...string) (*proc.Proc, error) {
	p, err := w.start("millweir", []string{"dev", "--data", w.Data(), "--addr", addr}, w.embedEnv(), env)
	if err != nil {
		return nil, err
	}
	p.HTTP = "http://" + addr
	return p, p.AwaitReady(ctx, readyLimit)
}

// Data is the data folder of StartDev.
func (w *World) Data() string { return filepath.Join(w.Dir, "data") }

// redisURL is that of the server, or of the sentinels.
func (w *World) redisURL() string {
	if w.Sentinels != nil {
		return w.Sentinels.URL()
	}
	return w.Redis.URL(w.redisName())
}

// serverEnv are the settings that lead to the world's servers, or to the proxies in front of them.
func (w *World) serverEnv() []string {
	sql := w.near(w.SQL.Addr)
	if w.Commits != nil {
		sql = w.Commits.Addr
	}
	vectors := w.near(w.Chroma.Addr)
	if w.ChromaHTTP != nil {
		vectors = w.ChromaHTTP.Addr
	}
	address := "MYSQL_DSN=" + strings.Replace(w.SQL.DSN(w.sqlName()), w.SQL.Addr, sql, 1)
	if w.opts.Postgres {
		address = "DATABASE_URL=" + strings.Replace(w.SQL.URL(w.sqlName()), w.SQL.Addr, sql, 1)
	}
	env := []string{
		address, "VECTOR_STORE=chroma", "CHROMA_BASE_URL=http://" + vectors, "AUTH_MODE=none", "UPLOAD_DIR=" + w.Uploads(),
	}
	if w.Redis != nil {
		env = append(env, "REDIS_URL="+strings.Replace(w.redisURL(), w.Redis.Addr, w.near(w.Redis.Addr), 1))
	}
	if w.opts.RabbitMQ {
		env = append(env, "RABBITMQ_URL="+w.rabbitURL())
	}
	if w.Kafka != nil {
		env = append(env, "INGEST_QUEUE=kafka", "KAFKA_BOOTSTRAP_SERVERS="+w.Kafka.Addr, "INGEST_KAFKA_TOPIC="+w.Topic())
	}
	return append(env, w.embedEnv()...)
}

// Uploads is the upload folder of the services.
func (w *World) Uploads() string {
	for _, setting := range slices.Backward(w.opts.Env) {
		if dir, ok := strings.CutPrefix(setting, "UPLOAD_DIR="); ok {
			return dir
		}
	}
	return filepath.Join(w.Dir, "uploads")
}

// embedEnv are the settings that lead to the fake embedding service, if there is one.
func (w *World) embedEnv() []string {
	if w.Embed == nil {
		return nil
	}
	return []string{"EMBEDDING_BASE_URL=http://" + w.near(w.embedHost()), "EMBEDDING_MODEL=test"}
}

// embedHost is host:port of the fake embedding service, "" when there is none.
func (w *World) embedHost() string {
	if w.Embed == nil {
		return ""
	}
	return strings.TrimPrefix(w.Embed.URL, "http://")
}

// start runs one binary with the world's own settings, those of Options, and the caller's; later ones win.
func (w *World) start(service string, args, own, env []string) (*proc.Proc, error) {
	base := []string{"LOG_FORMAT=json"}
	if w.opts.Partitions > 1 {
		base = append(base, "INGEST_STREAM_PARTITIONS="+strconv.Itoa(w.opts.Partitions))
	}
	for _, inherited := range []string{"PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR"} {
		if v := os.Getenv(inherited); v != "" {
			base = append(base, inherited+"="+v)
		}
	}
	var operator string
	if args == nil {
		operator = FreeAddr()
		base = append(base, "OPERATOR_ADDR="+operator)
	}
	if service == "ingest-api" {
		base = append(base, "HTTP_ADDR="+FreeAddr())
	}
	env = slices.Concat(base, own, w.opts.Env, env)
	p, err := w.spawn(service, filepath.Join(w.bench.Bin, service), args, env)
	if err != nil {
		return nil, err
	}
	if operator != "" {
		p.Operator = "http://" + operator
	}
	for _, setting := range env { // the last one counts, as in the process itself
		if addr, ok := strings.CutPrefix(setting, "HTTP_ADDR="); ok {
			p.HTTP = "http://" + addr
		}
	}
	if service != "ingest-api" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, env)
	}
	return p, nil
}

// given are the ports that FreeAddr gave away.
var given sync.Map

// FreeAddr is a loopback address on which nobody listens; it is not given twice in one program.
func FreeAddr() string {
	var lc net.ListenConfig
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if _, before := given.LoadOrStore(port, true); before {
			continue
		}
		if l, err := lc.Listen(context.Background(), "tcp", addr); err == nil && l.Close() == nil {
			return addr
		}
	}
	return "127.0.0.1:0" // nothing is free: the service says so
}
