package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const firstDial = 5 * time.Second // of one server of a Balancer

// Balancer passes each connection to the first of its servers that takes it, in their order.
type Balancer struct {
	Addr string // what services are told

	upstreams []string
	listener  net.Listener
	group     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// NewBalancer listens on a loopback address of its own. Close it.
func NewBalancer(upstreams ...string) (*Balancer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("balancer: %w", err)
	}
	b := &Balancer{Addr: l.Addr().String(), upstreams: upstreams, listener: l, conns: map[net.Conn]bool{}}
	b.group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			b.group.Go(func() { b.pass(client) })
		}
	})
	return b, nil
}

// pass ties a client to a server until one of them ends.
func (b *Balancer) pass(client net.Conn) {
	defer client.Close() //nolint:errcheck // closed to wake the other side
	var server net.Conn
	for _, addr := range b.upstreams {
		var err error
		if server, err = net.DialTimeout("tcp", addr, firstDial); err == nil {
			break
		}
	}
	if server == nil || !b.hold(client, server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = client.Close(), server.Close()
		})
	}
	both.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, client)
	delete(b.conns, server)
}

// hold notes open connections for Close; false: it is closed already.
func (b *Balancer) hold(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		if b.closed {
			_ = c.Close()
		} else {
			b.conns[c] = true
		}
	}
	return !b.closed
}

// Close ends the balancer and its connections.
func (b *Balancer) Close() {
	_ = b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.conns {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.group.Wait()
}
