package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
)

// AdminHandler serves /healthz, /readyz, /metrics and /actuator/prometheus of env, and /debug/pprof/ if asked.
// ingest-api mounts parts of it on its own address too.
func AdminHandler(env *Env, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", HealthHandler)
	mux.HandleFunc("GET /readyz", ReadyHandler(env.Ready))
	metrics := MetricsHandler(env)
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET /actuator/prometheus", metrics)
	if withPprof {
		mux.HandleFunc("/debug/pprof/", localOnly(pprof.Index))
		mux.HandleFunc("/debug/pprof/cmdline", localOnly(pprof.Cmdline))
		mux.HandleFunc("/debug/pprof/profile", localOnly(pprof.Profile))
		mux.HandleFunc("/debug/pprof/symbol", localOnly(pprof.Symbol))
		mux.HandleFunc("/debug/pprof/trace", localOnly(pprof.Trace))
	}
	return mux
}

// HealthHandler returns 200 as long as the process can answer at all.
func HealthHandler(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ReadyHandler returns 200 when all checks pass and 503 otherwise; the body is a Report that names what is missing.
func ReadyHandler(r *Ready) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		report, status := r.Check(req.Context()), http.StatusOK
		if !report.Ready {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, report)
	}
}

// MetricsHandler shows env.Metrics; a collector that fails costs its own figures only.
func MetricsHandler(env *Env) http.Handler {
	return promhttp.HandlerFor(env.Metrics, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, Registry: env.Metrics,
		ErrorLog: slog.NewLogLogger(env.Log.Handler(), slog.LevelWarn),
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// localOnly refuses requests for another host name: a page that rebinds its own name to 127.0.0.1 could else read profiles.
func localOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "only by a loopback address", http.StatusForbidden)
			return
		}
		h(w, r)
	}
}

// operator is the operator server.
type operator struct {
	listener net.Listener
	server   *http.Server
}

// listenOperator binds addr; if it is the default (not set by the user) and taken, it binds a free port of the same host.
func listenOperator(ctx context.Context, addr string, set bool) (*operator, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil && !set && errors.Is(err, syscall.EADDRINUSE) {
		host, _, splitErr := net.SplitHostPort(addr)
		if splitErr != nil {
			return nil, splitErr
		}
		l, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, err
	}
	return &operator{listener: l}, nil
}

func (o *operator) url() string { return "http://" + o.listener.Addr().String() }

func (o *operator) loopback() bool {
	a, ok := o.listener.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// serve returns until the returned function is called, which waits for the server's end.
func (o *operator) serve(h http.Handler, log *slog.Logger) (stop func()) {
	o.server = &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := o.server.Serve(o.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("process: operator server ended", slog.Any("error", err))
		}
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := o.server.Shutdown(ctx); err != nil {
			err = errors.Join(err, o.server.Close()) // a profile that still runs must not hold the process
			log.Warn("process: operator server", slog.String("error", fmt.Sprint(err)))
		}
		wg.Wait()
	}
}
