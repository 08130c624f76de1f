package redisclient

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Causes while there is no connection yet.
var (
	errNoPrimary = errors.New("no sentinel has named a primary yet")
	errNoNode    = errors.New("no node of the Redis Cluster has answered yet")
	errOneRedis  = errors.New("the server is no Redis Cluster: REDIS_URL must be redis://host:port")
)

// lazyClient is a client of rueidis' Sentinel or Cluster mode, which refuses to exist before a sentinel and a primary, or a
// node, have answered. No service may depend on that to start (design D16), so it is made by the first command that
// succeeds in it.
type lazyClient struct {
	option  rueidis.ClientOption
	mode    rueidis.ClientMode
	missing error          // why there is no connection
	offline rueidis.Client // every command fails on it, for failed or missing
	builder rueidis.Builder

	mu      sync.Mutex
	client  rueidis.Client // nil until connected
	attempt chan struct{}  // open while somebody connects
	failed  error          // of the last attempt
	closed  bool
}

var _ rueidis.Client = (*lazyClient)(nil)

func newLazyClient(option rueidis.ClientOption, mode rueidis.ClientMode) *lazyClient {
	l := &lazyClient{option: option, mode: mode, missing: errNoPrimary}
	if mode == rueidis.ClientModeCluster {
		l.missing = errNoNode
	}
	l.offline, _ = rueidis.NewClient(rueidis.ClientOption{ // it never dials: its error is ours
		InitAddress: option.InitAddress[:1], ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return nil, cmp.Or(l.failed, l.missing)
		},
	})
	if l.builder = l.offline.B(); mode == rueidis.ClientModeCluster {
		l.builder = slotBuilder()
	}
	return l
}

// slotBuilder makes commands that know their slots. rueidis has it only in a client that has seen a cluster: this one sees
// one without nodes, in the own process, and is closed at once.
var slotBuilder = sync.OnceValue(func() rueidis.Builder {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"none:1"}, DisableCache: true, AlwaysRESP2: true, DisableRetry: true,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go answerEmpty(theirs)
			return ours, nil
		},
	})
	if err != nil {
		panic(err) // another rueidis than the one that the tests ran with
	}
	defer client.Close()
	return client.B()
})

// answerEmpty returns an empty array to each command until the connection ends.
func answerEmpty(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "*") {
			if _, err := conn.Write([]byte("*0\r\n")); err != nil {
				return
			}
		}
	}
}

// now is the connected client; until there is one, after one attempt to connect, a client on which every command fails for
// the reason of that.
func (l *lazyClient) now(ctx context.Context) rueidis.Client {
	l.mu.Lock()
	if l.client == nil && !l.closed && l.attempt == nil {
		l.attempt = make(chan struct{})
		go l.connect(l.attempt)
	}
	client, attempt := l.client, l.attempt
	l.mu.Unlock()
	if client != nil || attempt == nil {
		return cmp.Or(client, l.offline)
	}
	select {
	case <-attempt:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.client, l.offline)
}

// connect makes one attempt; Close waits for it. It takes at most a few dial timeouts.
func (l *lazyClient) connect(attempt chan struct{}) {
	client, err := connect(l.option)
	if err == nil && client.Mode() != l.mode { // rueidis takes one Redis for a cluster of one; its keys have other names
		client.Close()
		err = errOneRedis
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = nil
	switch {
	case err != nil:
		l.failed = fmt.Errorf("%w: %w", l.missing, err)
	case l.closed:
		client.Close()
		l.failed = rueidis.ErrClosing
	default:
		l.client, l.failed = client, nil
	}
	close(attempt)
}

// Close closes the client and waits for an attempt under way.
func (l *lazyClient) Close() {
	l.mu.Lock()
	l.closed = true
	client, attempt := l.client, l.attempt
	l.mu.Unlock()
	if attempt != nil {
		<-attempt
	}
	if client != nil {
		client.Close()
	}
	l.offline.Close()
}

// The rest passes every call on. No call of Dedicated, Dedicate and Nodes has a ctx.

// B returns the command builder.
func (l *lazyClient) B() rueidis.Builder { return l.builder }

// Mode is Sentinel or Cluster, connected or not.
func (l *lazyClient) Mode() rueidis.ClientMode { return l.mode }

// Do runs one command.
func (l *lazyClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return l.now(ctx).Do(ctx, cmd)
}

// DoMulti runs several commands in one pipeline.
func (l *lazyClient) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	return l.now(ctx).DoMulti(ctx, multi...)
}

// DoCache runs one command; nothing is cached.
func (l *lazyClient) DoCache(ctx context.Context, cmd rueidis.Cacheable, ttl time.Duration) rueidis.RedisResult {
	return l.now(ctx).DoCache(ctx, cmd, ttl)
}

// DoMultiCache runs several commands; nothing is cached.
func (l *lazyClient) DoMultiCache(ctx context.Context, multi ...rueidis.CacheableTTL) []rueidis.RedisResult {
	return l.now(ctx).DoMultiCache(ctx, multi...)
}

// DoStream runs one command and streams what it returns.
func (l *lazyClient) DoStream(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResultStream {
	return l.now(ctx).DoStream(ctx, cmd)
}

// DoMultiStream runs several commands and streams what they return.
func (l *lazyClient) DoMultiStream(ctx context.Context, multi ...rueidis.Completed) rueidis.MultiRedisResultStream {
	return l.now(ctx).DoMultiStream(ctx, multi...)
}

// Receive subscribes.
func (l *lazyClient) Receive(ctx context.Context, subscribe rueidis.Completed, fn func(rueidis.PubSubMessage)) error {
	return l.now(ctx).Receive(ctx, subscribe, fn)
}

// Dedicated runs fn on a connection of its own.
func (l *lazyClient) Dedicated(fn func(rueidis.DedicatedClient) error) error {
	return l.now(context.Background()).Dedicated(fn)
}

// Dedicate takes a connection.
func (l *lazyClient) Dedicate() (rueidis.DedicatedClient, func()) {
	return l.now(context.Background()).Dedicate()
}

// Nodes are the servers by address.
func (l *lazyClient) Nodes() map[string]rueidis.Client { return l.now(context.Background()).Nodes() }
