// Command redislab starts Redis servers for the tests of pkg/streammq, which is a module that needs none of ours:
// they build this program, and speak HTTP with it through pkg/streammq/internal/redistest.
//
// It prints its address, and ends with all its servers when its standard input is closed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

const headerTimeout = time.Minute

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "redislab:", err) // the reader of the address sees that there is none
	}
}

func run(in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l := &lab{servers: map[string]*labserver.Server{}, clusters: map[string]*labserver.Cluster{}, emulators: map[string]func(){}}
	server := &http.Server{Handler: l, ReadHeaderTimeout: headerTimeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(out, listener.Addr()); err != nil {
		return errors.Join(err, server.Close(), l.end())
	}
	_, err = io.Copy(io.Discard, in)
	err = errors.Join(err, server.Close(), l.end())
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// request is one wish; which fields count depends on Do.
type request struct {
	Do        string
	Addr      string // the server, or the first master of the cluster, that it is about
	Args      []string
	Databases int
	Replica   bool
	Version   string
}

// answer has what there is to tell.
type answer struct {
	Addrs   []string // of the server, or of the masters
	Replica string
	Program string
	Error   string
}

// lab has all servers by their address, and all clusters by that of their first master when they were started.
type lab struct {
	mu        sync.Mutex
	servers   map[string]*labserver.Server
	clusters  map[string]*labserver.Cluster
	emulators map[string]func()
}

func (l *lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q request
	var a answer
	err := json.NewDecoder(r.Body).Decode(&q)
	if err == nil {
		a, err = l.do(r.Context(), q)
	}
	if err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(w).Encode(a) // who asked may be gone
}

func (l *lab) do(ctx context.Context, q request) (answer, error) {
	switch q.Do {
	case "start":
		s, err := labserver.Start(ctx, labserver.KindRedis, labserver.Options{Args: q.Args, Databases: q.Databases})
		if err != nil {
			return answer{}, err
		}
		l.keep(s)
		return answer{Addrs: []string{s.Addr}}, nil
	case "cluster":
		c, err := labserver.StartCluster(ctx, q.Replica)
		if err != nil {
			return answer{}, err
		}
		l.keep(append([]*labserver.Server{c.Replica}, c.Masters...)...)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.clusters[c.Masters[0].Addr] = c
		return nodes(c), nil
	case "emulator":
		address, stop, err := embedded.Start()
		if err != nil {
			return answer{}, err
		}
		u, err := url.Parse(address)
		if err != nil {
			return answer{}, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.emulators[u.Host] = stop
		return answer{Addrs: []string{u.Host}}, nil
	case "python":
		program, err := installed.FastStreamPython(q.Version)
		return answer{Program: program}, err
	case "synced", "promote":
		return l.change(ctx, q)
	default:
		return answer{}, l.order(ctx, q)
	}
}

// change is what a whole cluster is told.
func (l *lab) change(ctx context.Context, q request) (answer, error) {
	l.mu.Lock()
	c := l.clusters[q.Addr]
	l.mu.Unlock()
	if c == nil {
		return answer{}, fmt.Errorf("%s: no such cluster", q.Addr)
	}
	if q.Do == "synced" {
		return answer{}, c.Synced(ctx)
	}
	err := c.Promote(ctx)
	return nodes(c), err
}

// order is what one server is told.
func (l *lab) order(ctx context.Context, q request) error {
	l.mu.Lock()
	s, stop := l.servers[q.Addr], l.emulators[q.Addr]
	l.mu.Unlock()
	switch {
	case stop != nil && q.Do == "end":
		stop()
		return nil
	case s == nil:
		return fmt.Errorf("%s: no such server", q.Addr)
	}
	switch q.Do {
	case "stop":
		return s.Stop(ctx)
	case "kill":
		return s.Kill(ctx)
	case "restart":
		return s.Restart(ctx)
	case "pause":
		return s.Pause()
	case "continue":
		return s.Continue()
	case "end":
		return errors.Join(s.Kill(ctx), os.RemoveAll(s.Dir))
	default:
		return fmt.Errorf("%q: no such wish", q.Do)
	}
}

func (l *lab) keep(servers ...*labserver.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range servers {
		if s != nil {
			l.servers[s.Addr] = s
		}
	}
}

// end ends all that was started.
func (l *lab) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, stop := range l.emulators {
		stop()
	}
	for _, s := range l.servers {
		errs = append(errs, s.Kill(context.Background()), os.RemoveAll(s.Dir))
	}
	return errors.Join(errs...)
}

func nodes(c *labserver.Cluster) answer {
	var a answer
	for _, m := range c.Masters {
		a.Addrs = append(a.Addrs, m.Addr)
	}
	if c.Replica != nil {
		a.Replica = c.Replica.Addr
	}
	return a
}
