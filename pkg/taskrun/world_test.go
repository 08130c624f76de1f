package taskrun

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// testHandler does what each test says.
type testHandler struct {
	run          func(ctx context.Context, job Job) Result
	decide       func(m taskstate.DBClock, d Done) (taskstate.Decision, error)
	onTransition func(changed []taskstate.Decision, payloads map[string]any) error

	mu   sync.Mutex
	runs []string
}

func (k *testHandler) Describe() Description { return Description{Noun: "test"} }

func (k *testHandler) Handle(ctx context.Context, job Job) Result {
	k.mu.Lock()
	k.runs = append(k.runs, job.Task.ID)
	k.mu.Unlock()
	if k.run == nil {
		return Result{}
	}
	return k.run(ctx, job)
}

func (k *testHandler) ran() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.runs...)
}

// errHopeless is classified as permanent.
var errHopeless = errors.New("hopeless")

func (k *testHandler) Classify(err error) taskstate.Failure {
	return taskstate.Failure{Code: "TEST", Cause: err.Error(), Message: "it failed", Permanent: errors.Is(err, errHopeless)}
}

// testDecider decides on successes too.
type testDecider struct{ *testHandler }

func (k testDecider) Decide(_ context.Context, _ taskstate.Tx, m taskstate.DBClock, dones []Done) ([]taskstate.Decision, error) {
	var out []taskstate.Decision
	for _, d := range dones {
		dec, err := k.decide(m, d)
		if err != nil {
			return nil, err
		}
		out = append(out, dec)
	}
	return out, nil
}

func (k *testHandler) OnTransition(_ context.Context, _ taskstate.Tx, _ taskstate.DBClock, changed []taskstate.Decision, payloads map[string]any) error {
	if k.onTransition == nil {
		return nil
	}
	return k.onTransition(changed, payloads)
}

// world is a store, a stream and runners over them.
type world struct {
	t      *testing.T
	store  *memStore
	stream *memStream
	outbox *memOutbox // nil: none
	log    io.Writer  // of runners that are made from here on; nil: nobody reads it
	stops  map[string]*standstill
}

func newWorld(t *testing.T) *world {
	return &world{t: t, store: newMemStore(), stream: newMemStream(false)}
}

// process is one running runner.
type process struct {
	*Runner
	kind *testHandler
	reg  *prometheus.Registry
	stop context.CancelFunc
	done chan error
}

// start starts a runner; it is stopped at the end of the test.
func (w *world) start(name string, kind *testHandler, edit ...func(c *Config)) *process {
	w.t.Helper()
	p := w.make(name, kind, edit...)
	ctx, cancel := context.WithCancel(w.t.Context())
	p.stop = cancel
	go func() { p.done <- p.Run(ctx) }()
	w.t.Cleanup(func() { p.end(w.t) })
	return p
}

// make makes a runner that does not run.
func (w *world) make(name string, kind *testHandler, edit ...func(c *Config)) *process {
	w.t.Helper()
	cfg := NewDefaultConfig()
	cfg.Process, cfg.Concurrency, cfg.Policy.DLQ = name, 4, !w.stream.topic
	for _, f := range edit {
		f(&cfg)
	}
	p := &process{kind: kind, reg: prometheus.NewRegistry(), done: make(chan error, 1), stop: func() {}}
	var handler Handler = kind
	if kind.decide != nil {
		handler = testDecider{kind}
	}
	deps := Deps{
		Store: w.store, Queue: w.stream.Join(name), Handlers: map[string]Handler{"test": handler},
		Log: slog.New(slog.NewTextHandler(cmp.Or(w.log, io.Discard), nil)), Metrics: p.reg,
	}
	if s := w.stops[name]; s != nil {
		deps.Store, deps.Now = stoppedStore{w.store, s}, func() time.Time { s.wait(); return time.Now() }
	}
	if w.outbox != nil {
		deps.Outbox = w.outbox
		if w.outbox.box != nil {
			deps.DeadLetters = w.outbox.box
		}
	}
	p.Runner = New(cfg, deps)
	w.t.Cleanup(func() {
		if !p.running.Load() {
			close(p.ended) // for workers of claims that the test made
		}
	})
	return p
}

// end stops a runner and waits for it.
func (p *process) end(t *testing.T) {
	t.Helper()
	if p.running.Load() {
		p.stop()
		if p.done != nil {
			require.NoError(t, <-p.done)
			p.done = nil
		}
	}
}

// task puts a QUEUED task and sends its delivery.
func (w *world) task(id string, edit ...func(t *taskstate.Task)) (delivery string) {
	t := taskstate.Task{ID: id}
	for _, f := range edit {
		f(&t)
	}
	w.store.put(t)
	return w.stream.send(id)
}

// stillFor waits until every goroutine of the bubble waits, d later.
func stillFor(d time.Duration) {
	<-time.After(d) // fake time of the bubble: nothing is waited for in earnest
	synctest.Wait()
}

// result is one value of ingest_task_process_total.
func (p *process) result(r string) float64 {
	return testutil.ToFloat64(p.m.Processed.WithLabelValues(r))
}

// logged is what a runner has logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// meter counts what goes on at the same time.
type meter struct {
	mu        sync.Mutex
	now, most int
	begun     int
}

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now += n
	m.begun += max(n, 0)
	m.most = max(m.most, m.now)
}

func (m *meter) read() (now, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, m.most
}

// since counts what has begun since the last call.
func (m *meter) since() (begun int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	begun, m.begun = m.begun, 0
	return begun
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = m.now
}

// once is one of the loops of a stream's transport.
func once(p *process, what string) func(ctx context.Context) error {
	for _, l := range p.transport.Loops() {
		if l.What == what {
			return l.Once
		}
	}
	panic("no loop " + what)
}
