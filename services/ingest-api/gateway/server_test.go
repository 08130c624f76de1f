package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/ingest-api/gateway/uploads"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// TestGracefulStop: an upload that is under way finishes, a stream ends, nothing new begins, Run returns nil.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, err := NewServer(t.Context(), b.g.cfg, b.g.deps2())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	base := "http://" + s.Addr()

	task := b.accept(ada, "a.txt", "x")
	stream := b.open(base+"/api/knowledge/tasks/"+task.TaskID+"/events", http.MethodGet, nil, "")
	events := bufio.NewReader(stream.Body)
	_, err = readEvent(t, events)
	require.NoError(t, err)

	body, kind := form(t, file("slow.txt", strings.Repeat("x", 10_000)))
	reader, writer := io.Pipe()
	answered := make(chan int, 1)
	go func() {
		res := b.open(base+asyncPath, http.MethodPost, reader, kind)
		answered <- res.StatusCode
	}()
	_, err = writer.Write(body.Next(5000))
	require.NoError(t, err)
	for name := ""; name != "slow.txt"; name = <-b.svc.receives {
	}
	stop()
	_, err = readEvent(t, events)
	require.ErrorIs(t, err, io.EOF)
	require.Eventually(t, func() bool { return web.Stopped(s.gateway.draining) }, time.Minute, time.Millisecond)
	_, err = writer.Write(body.Bytes())
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Equal(t, http.StatusAccepted, <-answered)
	require.NoError(t, <-ended)
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr())
	require.Error(t, err)
}

// deps2 are the gateway's parts for a second one, whose metrics are its own.
func (g *Gateway) deps2() Deps {
	d := g.deps
	d.Registerer = nil
	return d
}

// open sends a request of ada's over the network.
func (b *bench) open(target, method string, body io.Reader, kind string) *http.Response {
	r, err := http.NewRequestWithContext(b.t.Context(), method, target, body)
	require.NoError(b.t, err)
	r.Header.Set("Authorization", "Bearer "+ada)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Errorf("%s %s: %v", method, target, err)
		return &http.Response{Body: http.NoBody}
	}
	b.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	b := newBench(t)
	cfg := testConfig()
	cfg.Addr = l.Addr().String()
	_, err = NewServer(t.Context(), cfg, b.g.deps2())
	require.ErrorContains(t, err, "HTTP_ADDR "+cfg.Addr)
}

// An upload that stands still is ended, and what was received of it is gone.
func TestIdleUploadIsEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config, _ *Deps) { c.UploadIdleTimeout = time.Second })
	s := b.serve()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n"+
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx", asyncPath)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusRequestTimeout, res.StatusCode)
	require.Zero(t, b.held())
}

// slowBody gives one part of a body at a time; before each the clock moves on.
type slowBody struct {
	parts []string
	pause time.Duration
	clock *atomic.Int64 // nanoseconds
	begun bool          // the first part
}

func (s *slowBody) Read(p []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, io.EOF
	}
	if !s.begun {
		s.clock.Add(int64(s.pause))
	}
	n := copy(p, s.parts[0])
	s.begun = n < len(s.parts[0])
	if s.parts[0] = s.parts[0][n:]; s.parts[0] == "" {
		s.parts = s.parts[1:]
	}
	return n, nil
}

// An upload that goes on for ever, or drips, is ended with its own code, and what was received of it is gone.
func TestUploadsThatTakeTooLongAreEnded(t *testing.T) {
	t.Parallel()
	const head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\n%s\r\n"
	big := strings.Repeat("x", 20_000)
	for name, c := range map[string]struct {
		pause  time.Duration
		rate   int64
		bodies []string
		code   string
	}{
		"too long":                   {31 * time.Minute, 0, []string{"one", "two", "three"}, web.CodeUploadTooLong},
		"too slow":                   {50 * time.Second, 1000, []string{"one", "two", "three"}, web.CodeUploadTooSlow},
		"fast at first, slow then":   {50 * time.Second, 100, []string{big, "two", "three", "four", "five", "six"}, web.CodeUploadTooSlow},
		"slow, and so it is allowed": {50 * time.Second, 0, []string{"one", "two", "three"}, ""},
		"slow, but fast enough":      {50 * time.Second, 100, []string{big, big, big, big}, ""},
		"slow in its first minute":   {25 * time.Second, 1000, []string{"one"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock atomic.Int64
			b := newBench(t, func(cfg *Config, d *Deps) {
				cfg.UploadMinRate = c.rate
				d.Now = func() time.Time { return time.Unix(0, clock.Load()) }
			})
			body := &slowBody{pause: c.pause, clock: &clock}
			for i, text := range c.bodies {
				body.parts = append(body.parts, fmt.Sprintf(head, fmt.Sprint(i, ".txt"), text))
			}
			body.parts = append(body.parts, "--b--\r\n")
			w := b.do(b.request(ada, http.MethodPost, asyncPath, body, "Content-Type", "multipart/form-data; boundary=b"))
			if c.code == "" {
				require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
				return
			}
			p := b.refused(w, http.StatusRequestTimeout, c.code)
			require.Contains(t, p.Message, "UPLOAD_M")
			require.Zero(t, b.held())
		})
	}
}

// A client whose connection drips is ended while it is waited for, not when it sends again.
func TestADrippingConnectionIsEnded(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	b := newBench(t, func(cfg *Config, d *Deps) {
		cfg.UploadMinRate = 1000
		d.Now = func() time.Time {
			return time.Unix(0, clock.Add(int64(uploads.RateGrace)/2-int64(10*time.Millisecond)))
		} // each look takes half a minute
	})
	s := b.serve()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n"+
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx", asyncPath)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusRequestTimeout, res.StatusCode)
	require.Zero(t, b.held())
}

func TestConfigProblemsNameTheVariable(t *testing.T) {
	t.Parallel()
	require.NoError(t, testConfig().Validate())
	for want, change := range map[string]func(*Config){
		"HTTP_ADDR":                   func(c *Config) { c.Addr = "8081" },
		"AUTH_MODE":                   func(c *Config) { c.AuthMode = "open" },
		"TRUSTED_PROXIES":             func(c *Config) { c.TrustedProxies = []string{"proxy.example"} },
		"UPLOAD_MAX_BYTES":            func(c *Config) { c.UploadMaxBytes = 0 },
		"UPLOAD_MAX_REQUEST_BYTES":    func(c *Config) { c.UploadMaxRequestBytes = -1 },
		"UPLOAD_RATE_LIMIT":           func(c *Config) { c.UploadRateLimit = -1 },
		"UPLOAD_RATE_WINDOW_SECONDS":  func(c *Config) { c.UploadRateWindow = 0 },
		"UPLOAD_IDLE_TIMEOUT":         func(c *Config) { c.UploadIdleTimeout = 0 },
		"UPLOAD_MAX_DURATION":         func(c *Config) { c.UploadMaxDuration = 13 * time.Hour },
		"UPLOAD_MIN_BYTES_PER_SECOND": func(c *Config) { c.UploadMinRate = -1 },
		"EVENTS_MAX_CLIENTS":          func(c *Config) { c.EventsMaxClients = 0 },
		"EVENTS_MAX_CLIENTS_PER_USER": func(c *Config) { c.EventsMaxPerUser = -1 },
		"UPLOAD_MAX_OPEN_PER_USER":    func(c *Config) { c.UploadMaxOpenPerUser = -1 },
		"UPLOAD_MAX_BYTES_PER_USER":   func(c *Config) { c.UploadMaxBytesPerUser = -1 },
		"SHUTDOWN_GRACE":              func(c *Config) { c.ShutdownGrace = -1 },
	} {
		c := testConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	for addr, ok := range map[string]bool{
		"127.0.0.1:8081": true, "localhost:1": true, "[::1]:1": true, "127.9.9.9:1": true,
		":8081": false, "0.0.0.0:8081": false, "10.0.0.1:1": false, "example.com:1": false, "[::]:1": false,
	} {
		c := testConfig()
		c.AuthMode, c.Addr = AuthNone, addr
		err := c.Validate()
		require.Equal(t, ok, err == nil, "%s: %v", addr, err)
		if !ok {
			require.ErrorContains(t, err, "set AUTH_MODE=keys")
		}
	}
	_, err := New(testConfig(), Deps{Service: panicking{}, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "needs an authenticator")
	_, err = New(testConfig(), Deps{})
	require.ErrorContains(t, err, "required")
}

func TestConfigLoads(t *testing.T) {
	t.Setenv("UPLOAD_RATE_LIMIT", "7")
	cfg, err := process.Load[Config]()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:8081", cfg.Addr)
	require.Equal(t, 7, cfg.UploadLimit().Events)
	t.Setenv("AUTH_MODE", "open")
	_, err = process.Load[Config]()
	require.ErrorContains(t, err, "AUTH_MODE")
}

func TestUnknownAddressesAndMethods(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refused(b.get(ada, "/nothing"), http.StatusNotFound, web.CodeNotFound)
	b.refused(b.get(ada, "/api/knowledge/tasks/"), http.StatusNotFound, web.CodeNotFound)
	w := b.do(b.request(ada, http.MethodPatch, "/api/knowledge/tasks", nil))
	b.refused(w, http.StatusMethodNotAllowed, web.CodeMethodNotAllowed)
	require.Equal(t, "GET", w.Header().Get("Allow"))
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Equal(t, "job-7_a.b", b.get(ada, "/healthz", "X-Request-Id", "job-7_a.b").Header().Get("X-Request-Id"))
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", "a\x1b[31m", "ä", strings.Repeat("x", 129)} {
		id := b.get(ada, "/healthz", "X-Request-Id", bad).Header().Get("X-Request-Id")
		require.Regexp(t, `^[a-z0-9]{20,}$`, id)
		require.False(t, seen[id])
		seen[id] = true
	}
	b.get(ada, "/api/knowledge/tasks", "X-Request-Id", "mine", "User-Agent", "millweir-cli/1.0")
	require.Equal(t, "mine", b.svc.LastCaller().RequestID)
	require.Equal(t, "cli", b.svc.LastCaller().Channel)
}

type panicking struct{ ingest.Service }

func (panicking) Bases(context.Context, ingest.Caller, ingest.ListQuery) ([]ingest.Base, error) {
	panic("secret in a panic")
}

func TestPanicsAreAnswered(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *Config, d *Deps) { d.Service = panicking{} })
	w := b.get(ada, "/api/knowledge/bases")
	b.refused(w, http.StatusInternalServerError, web.CodeInternal)
	require.NotContains(t, w.Body.String(), "secret")
	require.Contains(t, b.log.String(), "secret in a panic")
	require.Contains(t, b.log.String(), "server_test.go")
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	ready := process.NewReady()
	var fault error
	ready.Register("mysql", func(context.Context) error { return fault })
	with := func(_ *Config, d *Deps) { d.Readiness = ready }
	b := newBench(t, with)
	require.Equal(t, http.StatusOK, b.get(nobody, "/readyz?x=1").Code)
	b.g.Drain()
	w := b.get(nobody, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.True(t, decode[process.Report](t, w).Draining)
	require.Equal(t, http.StatusOK, b.get(nobody, "/healthz").Code)
	ready = process.NewReady()
	fault = errors.New("dial 10.0.0.1: refused")
	ready.Register("mysql", func(context.Context) error { return fault })
	b = newBench(t, with)
	w = b.get(nobody, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, []string{"mysql"}, decode[process.Report](t, w).Missing)
	require.NotContains(t, w.Body.String(), "10.0.0.1")
	ready = process.NewReady()
	fault = process.Warning("base 0190 has lost vectors")
	ready.Register("vectors", func(context.Context) error { return fault })
	b = newBench(t, with)
	w = b.get(nobody, "/readyz")
	require.Equal(t, http.StatusOK, w.Code)
	require.NotContains(t, w.Body.String(), "0190", "for operators only")
}

func TestTraceIsContinued(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	spans := tracetest.NewSpanRecorder()
	b := newBench(t, func(_ *Config, d *Deps) {
		d.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	})
	b.get(ada, "/api/knowledge/tasks", "traceparent", parent, "baggage", strings.Repeat("a=b,", 1000))
	require.Len(t, spans.Ended(), 1)
	span := spans.Ended()[0]
	require.Equal(t, "GET /api/knowledge/tasks", span.Name())
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext().TraceID().String())
	require.Equal(t, "b7ad6b7169203331", span.Parent().SpanID().String())
	require.Contains(t, b.svc.LastCaller().TraceParent, span.SpanContext().SpanID().String())
	// Without a tracer the caller's context is passed on; one that is none is dropped.
	b = newBench(t)
	b.get(ada, "/api/knowledge/tasks", "traceparent", parent)
	require.Equal(t, parent, b.svc.LastCaller().TraceParent)
	b.get(ada, "/api/knowledge/tasks", "traceparent", strings.Repeat("0", 10_000))
	require.Empty(t, b.svc.LastCaller().TraceParent)
}

func TestMetricsCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.accept(ada, "a.txt", "12345")
	b.upload(ada, asyncPath, nil, file("a.txt", "12345"))
	b.upload(ada, asyncPath, nil, file("a.txt", ""))
	b.get(ada, "/nothing")
	require.InDelta(t, 1, testutil.ToFloat64(b.g.metrics.Uploads.WithLabelValues(web.UploadAccepted)), 0)
	require.InDelta(t, 1, testutil.ToFloat64(b.g.metrics.Uploads.WithLabelValues(web.UploadDuplicate)), 0)
	require.InDelta(t, 1, testutil.ToFloat64(b.g.metrics.Uploads.WithLabelValues(web.UploadRefused)), 0)
	require.InDelta(t, 10, testutil.ToFloat64(b.g.metrics.Bytes), 0)
	require.Equal(t, 3, testutil.CollectAndCount(b.g.metrics.Requests)) // 2xx and 4xx of the route, and "none"
	families, err := b.reg.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
}
