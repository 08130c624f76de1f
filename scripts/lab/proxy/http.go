package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// HTTPFault returns a request in the place of the server, or lets next do it.
type HTTPFault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// HTTPProxy stands between the services and an HTTP server and can answer in its place.
type HTTPProxy struct {
	Addr string // what services are told

	server *http.Server
	mu     sync.Mutex
	fault  HTTPFault
	met    int
}

// NewHTTPProxy passes everything to upstream, host:port, until Set says otherwise. Close it.
func NewHTTPProxy(upstream string) (*HTTPProxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("http proxy: %w", err)
	}
	next := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: upstream}) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 32},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as a server that is away
	}
	p := &HTTPProxy{Addr: l.Addr().String()}
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		fault := p.fault
		if fault != nil {
			p.met++
		}
		p.mu.Unlock()
		if fault == nil {
			next.ServeHTTP(w, r)
			return
		}
		fault(w, r, next)
	})}
	go func() { _ = p.server.Serve(l) }() // always ErrServerClosed after Close
	return p, nil
}

// Set gives every later request the fault; nil ends it. It returns how many requests met the one before.
func (p *HTTPProxy) Set(f HTTPFault) (met int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	met, p.met, p.fault = p.met, 0, f
	return met
}

// Met is how many requests have met the present fault.
func (p *HTTPProxy) Met() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met
}

// Close ends the proxy and its connections.
func (p *HTTPProxy) Close() { _ = p.server.Close() }

// Answer is the fault of a server that answers with a status and does nothing; retryAfter 0: without the header.
func Answer(status int, retryAfter time.Duration) HTTPFault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		if retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.FormatFloat(retryAfter.Seconds(), 'f', 0, 64))
		}
		http.Error(w, http.StatusText(status), status)
	}
}

// CutBody is the fault of a server that does what it is asked for and breaks off in the middle of its answer.
func CutBody(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(&cutWriter{ResponseWriter: w}, r)
	panic(http.ErrAbortHandler) // also when there was no body to cut
}

// cutWriter lets half of the first write through.
type cutWriter struct{ http.ResponseWriter }

func (w *cutWriter) Write(b []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(b[:len(b)/2])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}
