package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// maxHeaderBytes bounds a request's header; net/http adds 4 KiB of slack (A35).
	maxHeaderBytes    = 12 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 120 * time.Second
)

// Server serves a Gateway on its address.
type Server struct {
	gateway  *Gateway
	listener net.Listener
	http     *http.Server
}

// NewServer makes the gateway and opens its address, so that a taken port is known before anything starts.
// Run must be called afterwards; it closes the address.
func NewServer(ctx context.Context, cfg Config, deps Deps) (*Server, error) {
	g, err := New(cfg, deps)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on HTTP_ADDR %s: %w", cfg.Addr, err)
	}
	return &Server{
		gateway: g, listener: listener,
		http: &http.Server{
			Handler: g, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
			// No WriteTimeout: it would end event streams. Every write has a deadline of its own instead.
			ErrorLog: slog.NewLogLogger(deps.Logger.Handler(), slog.LevelDebug),
		},
	}, nil
}

// Addr is the address that is listened on, host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx ends, then stops in order: not ready, streams and waits end, no new connections,
// Requests in flight get SHUTDOWN_GRACE to finish. It returns nil after such a stop.
func (s *Server) Run(ctx context.Context) error {
	log, grace := s.gateway.log, s.gateway.cfg.ShutdownGrace
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	log.InfoContext(ctx, "gateway: listening", slog.String("addr", s.Addr()), slog.String("auth_mode", string(s.gateway.cfg.AuthMode)))
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	s.gateway.Drain()
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := s.http.Shutdown(graceful); err != nil {
		log.WarnContext(ctx, "gateway: requests cut off at the stop", slog.Duration("grace", grace), slog.Any("error", err))
		_ = s.http.Close() // its error says only that a connection was closed already
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	}
	log.InfoContext(ctx, "gateway: stopped")
	return nil
}
