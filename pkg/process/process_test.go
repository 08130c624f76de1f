package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_CHILD") != "" {
		Main(Spec{Name: "child", OperatorAddr: "127.0.0.1:0"}, childBody)
	}
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

type childConfig struct {
	Stalled bool `envconfig:"CHILD_DEAF" desc:"does not heed ctx"`
}

func childBody(ctx context.Context, env *Env, cfg *childConfig) error {
	_, _ = io.WriteString(env.Stdout, "running\n")
	<-ctx.Done()
	if cfg.Stalled {
		select {}
	}
	_, _ = io.WriteString(env.Stdout, "handed back\n")
	return ctx.Err()
}

func startChild(t *testing.T, env ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), "PROCESS_TEST_CHILD=1", "OPERATOR_ADDR="), env...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	r := bufio.NewReader(out)
	waitLine(t, r, "running")
	return cmd, r
}

func waitLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		require.NoError(t, err, "waiting for %q", want)
		if strings.TrimSpace(line) == want {
			return
		}
	}
}

func TestSignalStopsInOrder(t *testing.T) {
	t.Parallel()
	cmd, out := startChild(t)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	waitLine(t, out, "handed back")
	require.NoError(t, cmd.Wait(), "a stop that was asked for is no failure")
}

func TestSecondSignalForces(t *testing.T) {
	t.Parallel()
	cmd, _ := startChild(t, "CHILD_DEAF=true")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	// Signals of one kind may merge while the first is pending, so say it until it is heard.
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			// Two signals that are pending together may be delivered in either order.
			require.Contains(t, []int{128 + int(syscall.SIGINT), 128 + int(syscall.SIGTERM)}, exit.ExitCode())
			return
		case <-tick.C:
			_ = cmd.Process.Signal(os.Interrupt) // it may be gone
		}
	}
}

// start runs a body in this process and returns its operator's URL, a stop function and its output.
func start(t *testing.T, body func(context.Context, *Env) error) (env *Env, stop func() int, logs *syncBuffer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logs = &syncBuffer{}
	envs, code := make(chan *Env, 1), make(chan int, 1)
	go func() {
		code <- Run(ctx, Spec{Name: "svc", OperatorAddr: "127.0.0.1:0"}, IO{Stdout: logs, Stderr: logs},
			func(ctx context.Context, env *Env, _ *struct{}) error {
				envs <- env
				return body(ctx, env)
			})
	}()
	env = <-envs
	var once sync.Once
	n := -1
	stop = func() int {
		once.Do(func() {
			cancel()
			n = <-code
		})
		return n
	}
	t.Cleanup(func() { stop() })
	return env, stop, logs
}

func untilDone(ctx context.Context, _ *Env) error {
	<-ctx.Done()
	return nil
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // test
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestOperatorServer(t *testing.T) {
	t.Parallel()
	env, stop, logs := start(t, untilDone)
	up := errors.New("dial redis://u:" + canary + "@h: refused")
	env.Ready.Register("redis", func(context.Context) error { return up })
	env.Ready.Register("mysql", func(context.Context) error { return nil })
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "my_total"})
	env.Metrics.MustRegister(counter)

	status, body := get(t, env.OperatorURL+"/healthz")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"status":"ok"}`, body)

	status, body = get(t, env.OperatorURL+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"ready":false,"draining":false,"missing":["redis"],"checks":[
		{"name":"redis","ok":false,"error":"dial redis://***@h: refused"},{"name":"mysql","ok":true}]}`, body)

	for _, path := range []string{"/metrics", "/actuator/prometheus"} {
		status, body = get(t, env.OperatorURL+path)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, "my_total 0")
		require.Contains(t, body, `millweir_build_info{`)
	}
	status, _ = get(t, env.OperatorURL+"/debug/pprof/cmdline")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, ExitOK, stop())
	require.Contains(t, logs.String(), "operator "+env.OperatorURL+"\n")
	require.Equal(t, 1, strings.Count(logs.String(), "process: started"))
	require.Equal(t, 1, strings.Count(logs.String(), "process: stopped"))
}

func TestProbeAsksTheRunningService(t *testing.T) {
	env, stop, _ := start(t, untilDone)
	env.Ready.Register("mysql", func(context.Context) error { return nil })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(env.OperatorURL, "http://"))
	require.NoError(t, err)
	ask := func(addr string) (code int, out, errs string) {
		t.Setenv("OPERATOR_ADDR", addr)
		var o, e bytes.Buffer
		// A T whose settings are missing: a probe needs none of them.
		code = Run(t.Context(), Spec{Name: "svc"}, IO{[]string{"--probe"}, &o, &e}, func(context.Context, *Env, *sample) error { return nil })
		return code, o.String(), e.String()
	}
	for _, addr := range []string{"127.0.0.1:" + port, ":" + port, "0.0.0.0:" + port} {
		code, out, errs := ask(addr)
		require.Equal(t, ExitOK, code, errs)
		require.Contains(t, out, `"ready":true`)
	}
	env.Ready.Register("mysql", func(context.Context) error { return errors.New("away") })
	code, out, errs := ask(":" + port)
	require.Equal(t, ExitFailed, code)
	require.Contains(t, out, `"missing":["mysql"]`)
	require.Contains(t, errs, "not ready: 503")
	require.Equal(t, ExitOK, stop())
	code, _, errs = ask(":" + port)
	require.Equal(t, ExitFailed, code)
	require.Contains(t, errs, "refused")
	code, _, errs = ask("nonsense")
	require.Equal(t, ExitUsage, code)
	require.Contains(t, errs, "OPERATOR_ADDR")
}

// A service that has only just begun must not be sent any work: nothing says yet what it needs.
func TestNotReadyBeforeTheFirstCheckIsKnown(t *testing.T) {
	t.Parallel()
	r := NewReady()
	report := r.Check(t.Context())
	require.False(t, report.Ready)
	require.Equal(t, []string{"start"}, report.Missing)
	r.Register("mysql", func(context.Context) error { return nil })
	require.True(t, r.Check(t.Context()).Ready)
}

func TestHelpTellsSecretsFromAddresses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, PrintHelp(&out, struct {
		Token Secret `envconfig:"A_TOKEN" desc:"one"`
		Where DSN    `envconfig:"A_URL" desc:"two"`
		Name  string `envconfig:"A_NAME" desc:"three"`
	}{}))
	for _, line := range []string{`A_TOKEN +a secret +one`, `A_URL +an address +two`, `A_NAME +text +three`} {
		require.Regexp(t, line, out.String())
	}
}

func TestPprofOnlyByLoopbackNames(t *testing.T) {
	t.Parallel()
	env, _, _ := start(t, untilDone)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, env.OperatorURL+"/debug/pprof/cmdline", http.NoBody)
	require.NoError(t, err)
	req.Host = "rebound.example.org"
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusForbidden, resp.StatusCode)

	o, err := listenOperator(t.Context(), "0.0.0.0:0", true)
	require.NoError(t, err)
	require.False(t, o.loopback())
	stop := o.serve(AdminHandler(env, o.loopback()), env.Log)
	defer stop()
	_, port, err := net.SplitHostPort(o.listener.Addr().String())
	require.NoError(t, err)
	status, _ := get(t, "http://127.0.0.1:"+port+"/debug/pprof/cmdline")
	require.Equal(t, http.StatusNotFound, status)
}

func TestDrainTurnsReadyFirst(t *testing.T) {
	t.Parallel()
	saw := make(chan Report, 1)
	env, stop, _ := start(t, func(ctx context.Context, env *Env) error {
		<-ctx.Done()
		saw <- env.Ready.Check(context.WithoutCancel(ctx))
		return nil
	})
	env.Ready.Register("all", func(context.Context) error { return nil })
	require.True(t, env.Ready.Check(t.Context()).Ready)
	require.False(t, env.Ready.Draining())
	require.Equal(t, ExitOK, stop())
	report := <-saw
	require.True(t, report.Draining, "before the body hears of the end")
	require.False(t, report.Ready)
}

func TestOperatorPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // test
	o, err := listenOperator(t.Context(), l.Addr().String(), false)
	require.NoError(t, err, "the default is taken: a free one")
	require.NoError(t, o.listener.Close())
	_, err = listenOperator(t.Context(), l.Addr().String(), true)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "a port that was asked for is not replaced")
}

func TestAWarningLeavesTheProcessReady(t *testing.T) {
	t.Parallel()
	r := NewReady()
	r.Register("x", func(context.Context) error { return fmt.Errorf("look: %w", Warning("token=hush-hush is odd")) })
	report := r.Check(t.Context())
	require.True(t, report.Ready)
	require.Empty(t, report.Missing)
	require.True(t, report.Checks[0].OK)
	require.Contains(t, report.Checks[0].Warning, "is odd")
	require.NotContains(t, report.Checks[0].Warning, "hush-hush")
}

func TestReadyChecksShareAndTimeOut(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	r := NewReady()
	r.now = func() time.Time { return now }
	calls := 0
	r.Register("x", func(context.Context) error { calls++; return nil })
	for range 5 {
		require.True(t, r.Check(t.Context()).Ready)
	}
	require.Equal(t, 1, calls, "one look a second")
	now = now.Add(2 * checkFresh)
	r.Check(t.Context())
	require.Equal(t, 2, calls)

	r.Register("x", func(context.Context) error { panic("boom") })
	require.Contains(t, r.Check(t.Context()).Checks[0].Error, "boom")

	release := make(chan struct{})
	finished := make(chan struct{})
	r.Register("hangs", func(context.Context) error { <-release; close(finished); return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	report := r.Check(ctx)
	require.Equal(t, []string{"x", "hangs"}, report.Missing)
	require.Equal(t, errSlow.Error(), report.Checks[1].Error)
	ctx2, cancel2 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel2()
	r.Check(ctx2) // must not call it a second time: close of finished would panic
	close(release)
	<-finished
}

func TestRunArguments(t *testing.T) {
	body := func(context.Context, *Env, *sample) error { return errors.New("body ran") }
	for name, tc := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"help":     {[]string{"--help"}, ExitOK, "--check-config", ""},
		"version":  {[]string{"-version"}, ExitOK, "svc dev", ""},
		"help-env": {[]string{"--help-env"}, ExitOK, "INGEST_REDIS_MAX_ATTEMPTS", ""},
		"argument": {[]string{"frob"}, ExitUsage, "", `unknown argument "frob"`},
		"flag":     {[]string{"--frob"}, ExitUsage, "", "frob"},
		"no file":  {[]string{"--env-file", "/no/such"}, ExitUsage, "", "/no/such"},
		"check":    {[]string{"-check-config"}, ExitUsage, "", "MYSQL_DSN: is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Run(t.Context(), Spec{Name: "svc"}, IO{tc.args, &out, &errs}, body)
			require.Equal(t, tc.code, code, errs.String())
			require.Contains(t, out.String(), tc.out)
			require.Contains(t, errs.String(), tc.err)
		})
	}
}

func TestBadSettingsNameTheSlip(t *testing.T) {
	t.Setenv("MYSQL_DNS", canary)
	var errs bytes.Buffer
	code := Run(t.Context(), Spec{Name: "svc"}, IO{nil, io.Discard, &errs}, func(context.Context, *Env, *sample) error { return nil })
	require.Equal(t, ExitUsage, code)
	require.Contains(t, errs.String(), "1 bad setting(s):\n  MYSQL_DSN: is not set: the database\n  MYSQL_DNS is not a setting: did you mean MYSQL_DSN?\n")
	require.NotContains(t, errs.String(), canary)
}

func TestRunWithEnvFile(t *testing.T) {
	t.Setenv("MYSQL_DSN", "")
	require.NoError(t, os.Unsetenv("MYSQL_DSN"))
	t.Setenv("OPERATOR_ADDR", "")
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte("MYSQL_DSN=u:"+canary+"@tcp(h)/d\n"), 0o600))
	var out, errs bytes.Buffer
	body := func(_ context.Context, _ *Env, cfg *sample) error { return errors.New("saw " + cfg.DB.Reveal()) }
	require.Equal(t, ExitOK, Run(t.Context(), Spec{Name: "svc"}, IO{[]string{"--env-file", file, "-print-env"}, &out, &errs}, body))
	require.Contains(t, out.String(), "MYSQL_DSN=***@tcp(h)/d\n")
	require.Equal(t, ExitOK, Run(t.Context(), Spec{Name: "svc"}, IO{[]string{"-check-config"}, &out, &errs}, body))
	require.Equal(t, ExitFailed, Run(t.Context(), Spec{Name: "svc"}, IO{nil, &out, &errs}, body))
	require.Contains(t, errs.String(), "saw ***@tcp(h)/d")
	require.NotContains(t, out.String()+errs.String(), canary)
	for line := range strings.Lines(errs.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func TestRunAll(t *testing.T) {
	t.Parallel()
	wait := ServiceFunc(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, RunAll(ctx, wait, wait))
	require.NoError(t, RunAll(ctx))

	boom := errors.New("boom")
	err := RunAll(t.Context(), wait, Named("relay", ServiceFunc(func(context.Context) error { return boom })))
	require.ErrorIs(t, err, boom)
	require.EqualError(t, err, "relay: boom")

	err = RunAll(t.Context(), wait, ServiceFunc(func(context.Context) error { return nil }))
	require.ErrorIs(t, err, ErrEnded)
}

func TestSupervise(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 2)
	require.Equal(t, 7, supervise(func(context.Context) int { return 7 }, signals, io.Discard, nil))
	signals <- syscall.SIGTERM
	code := supervise(func(ctx context.Context) int {
		<-ctx.Done()
		var stopped *StoppedError
		if errors.As(context.Cause(ctx), &stopped) && stopped.Signal == syscall.SIGTERM {
			return 130
		}
		return 1
	}, signals, io.Discard, nil)
	require.Equal(t, 130, code)
}

func TestMemoryLimit(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(math.MaxInt64) // the limit is the whole process's
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, none := range []memlimit.Provider{
		func() (uint64, error) { return 0, memlimit.ErrNoLimit },
		func() (uint64, error) { return 0, memlimit.ErrCgroupsNotSupported },
		func() (uint64, error) { return math.MaxUint64, nil },
	} {
		require.Zero(t, setMemoryLimit(none))
	}
	require.Equal(t, int64(3865470566), setMemoryLimit(memlimit.Limit(4<<30)))
	n := LimitMemory()
	require.Positive(t, n, "a machine knows its memory")
	require.Equal(t, n, debug.SetMemoryLimit(-1))
	t.Setenv("GOMEMLIMIT", "1GiB")
	require.Zero(t, setMemoryLimit(memlimit.Limit(4<<30)))
}

// syncBuffer is written by the process and read by the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
