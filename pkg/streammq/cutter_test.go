package streammq

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// cutter stands between one client and Redis, or all nodes of a cluster. It passes commands one by one, and at the n-th one the process behind the
// client is gone: either before the command reaches the server, or after it was executed and before its answer comes back.
type cutter struct {
	listeners map[string]net.Listener // by the address of the server behind it
	single    bool

	mu       sync.Mutex
	left     int  // commands until the cut; negative: none
	executed bool // the last one is executed
	cut      bool
	passed   []string // names of commands
	conns    []net.Conn
	running  sync.WaitGroup
}

// handshake commands are no step of anything.
var handshake = []string{"HELLO", "CLIENT", "SELECT", "PING", "AUTH", "INFO", "COMMAND", "CLUSTER", "READONLY"}

func newCutter(t testing.TB, upstreams []string, n int, executed bool) *cutter {
	t.Helper()
	c := &cutter{listeners: map[string]net.Listener{}, single: len(upstreams) == 1, left: n, executed: executed}
	for _, upstream := range upstreams {
		c.stand(t, upstream)
	}
	t.Cleanup(c.close)
	return c
}

// stand begins to stand before one server.
func (c *cutter) stand(t testing.TB, upstream string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.listeners[upstream] = listener
	c.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil || !c.keep(client, server) {
				_ = client.Close()
				continue
			}
			c.running.Go(func() { c.serve(client, server) })
		}
	})
}

// keep notes the ends of a connection, or closes them when all is cut.
func (c *cutter) keep(ends ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, ends...)
	if c.cut {
		c.closeAll()
	}
	return !c.cut
}

func (c *cutter) closeAll() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *cutter) close() {
	c.mu.Lock()
	c.cut = true
	c.closeAll()
	c.mu.Unlock()
	for _, listener := range c.listeners {
		_ = listener.Close()
	}
	c.running.Wait()
}

// serve passes command after command, each with its answer.
func (c *cutter) serve(client, server net.Conn) {
	defer client.Close() //nolint:errcheck // it is a wire that is cut
	defer server.Close() //nolint:errcheck // as above
	from, to := bufio.NewReader(client), bufio.NewReader(server)
	for {
		command, err := readRESP(from)
		if err != nil {
			return
		}
		before, after := c.step(command)
		if before {
			return
		}
		if _, err := server.Write(command); err != nil {
			return
		}
		answer, err := readRESP(to)
		if err != nil || after {
			c.end()
			return
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

// step counts a command and tells whether the wire is cut before it, or after it was executed.
func (c *cutter) step(command []byte) (before, after bool) {
	name := commandName(command)
	if slices.Contains(handshake, name) {
		return false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return true, false
	}
	if c.left == 0 {
		if c.executed {
			return false, true
		}
		c.cut = true
		c.closeAll()
		return true, false
	}
	c.left--
	c.passed = append(c.passed, name)
	return false, false
}

func (c *cutter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.closeAll()
}

// reached tells whether the cut came.
func (c *cutter) reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

func (c *cutter) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.passed)
}

// client has one connection through the cutter to each server, and repeats nothing.
func (c *cutter) client(t testing.TB, db int) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: slices.Sorted(maps.Keys(c.listeners)), SelectDB: db, DisableCache: true, ForceSingleClient: c.single,
		DisableRetry: true, PipelineMultiplex: -1,
		DialCtxFn: func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			listener := c.listeners[address]
			if listener == nil {
				return nil, fmt.Errorf("%s is no server of the test", address)
			}
			return dialer.DialContext(ctx, "tcp", listener.Addr().String())
		},
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func commandName(command []byte) string {
	parts := bytes.SplitN(command, []byte("\r\n"), 4)
	if len(parts) < 3 {
		return ""
	}
	return strings.ToUpper(string(parts[2]))
}

// readRESP reads one whole value of RESP 2 or 3.
func readRESP(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil || len(line) < 3 {
		return line, err
	}
	var many int
	switch line[0] {
	case '$', '=', '!':
		n, err := strconv.Atoi(string(line[1 : len(line)-2]))
		if err != nil || n < 0 {
			return line, err
		}
		body := make([]byte, n+2)
		_, err = io.ReadFull(r, body)
		return append(line, body...), err
	case '*', '~', '>', '%', '|':
		if many, err = strconv.Atoi(string(line[1 : len(line)-2])); err != nil {
			return line, err
		}
		if line[0] == '%' || line[0] == '|' {
			many *= 2
		}
	}
	for range many {
		part, err := readRESP(r)
		if err != nil {
			return line, err
		}
		line = append(line, part...)
	}
	return line, nil
}
