package redisq

import (
	"bufio"
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
	offline rueidis.Client // every command fails on it
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
		InitAddress: option.InitAddress[:1], ForceSingleClient: true, DisableCache: true,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return nil, l.missing
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

// get returns the connected client, or waits for one attempt to connect.
func (l *lazyClient) get(ctx context.Context) (rueidis.Client, error) {
	l.mu.Lock()
	if l.client != nil || l.closed {
		defer l.mu.Unlock()
		if l.closed {
			return nil, rueidis.ErrClosing
		}
		return l.client, nil
	}
	if l.attempt == nil {
		l.attempt = make(chan struct{})
		go l.connect(l.attempt)
	}
	attempt := l.attempt
	l.mu.Unlock()
	select {
	case <-attempt:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", l.missing, ctx.Err())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return nil, l.failed
	}
	return l.client, nil
}

// connect makes one attempt; Close waits for it. It takes at most a few dial timeouts.
func (l *lazyClient) connect(attempt chan struct{}) {
	client, err := rueidis.NewClient(l.option)
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

// The rest passes every call on, or fails it with the reason.

// B returns the command builder.
func (l *lazyClient) B() rueidis.Builder { return l.builder }

// Mode is Sentinel or Cluster, connected or not.
func (l *lazyClient) Mode() rueidis.ClientMode { return l.mode }

// Do runs one command.
func (l *lazyClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	client, err := l.get(ctx)
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	return client.Do(ctx, cmd)
}

// DoMulti runs several commands in one pipeline.
func (l *lazyClient) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	client, err := l.get(ctx)
	if err != nil {
		return errorResults(len(multi), err)
	}
	return client.DoMulti(ctx, multi...)
}

// DoCache runs one command; nothing is cached.
func (l *lazyClient) DoCache(ctx context.Context, cmd rueidis.Cacheable, ttl time.Duration) rueidis.RedisResult {
	client, err := l.get(ctx)
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	return client.DoCache(ctx, cmd, ttl)
}

// DoMultiCache runs several commands; nothing is cached.
func (l *lazyClient) DoMultiCache(ctx context.Context, multi ...rueidis.CacheableTTL) []rueidis.RedisResult {
	client, err := l.get(ctx)
	if err != nil {
		return errorResults(len(multi), err)
	}
	return client.DoMultiCache(ctx, multi...)
}

// DoStream runs one command and streams its answer; not before a primary is known.
func (l *lazyClient) DoStream(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResultStream {
	client, err := l.get(ctx)
	if err != nil {
		return l.offline.DoStream(ctx, cmd) // it is offline: the result says so
	}
	return client.DoStream(ctx, cmd)
}

// DoMultiStream runs several commands and streams their answers; not before a primary is known.
func (l *lazyClient) DoMultiStream(ctx context.Context, multi ...rueidis.Completed) rueidis.MultiRedisResultStream {
	client, err := l.get(ctx)
	if err != nil {
		return l.offline.DoMultiStream(ctx, multi...)
	}
	return client.DoMultiStream(ctx, multi...)
}

// Receive subscribes.
func (l *lazyClient) Receive(ctx context.Context, subscribe rueidis.Completed, fn func(rueidis.PubSubMessage)) error {
	client, err := l.get(ctx)
	if err != nil {
		return err
	}
	return client.Receive(ctx, subscribe, fn)
}

// Dedicated runs fn on a connection of its own.
func (l *lazyClient) Dedicated(fn func(rueidis.DedicatedClient) error) error {
	client, err := l.get(context.Background())
	if err != nil {
		return err
	}
	return client.Dedicated(fn)
}

// Dedicate takes a connection; before a primary is known it is one on which every command fails.
func (l *lazyClient) Dedicate() (rueidis.DedicatedClient, func()) {
	client, err := l.get(context.Background())
	if err != nil {
		return l.offline.Dedicate()
	}
	return client.Dedicate()
}

// Nodes are the servers by address; the first address that is known, with a client that fails, before there is a connection.
func (l *lazyClient) Nodes() map[string]rueidis.Client {
	client, err := l.get(context.Background())
	if err != nil {
		return l.offline.Nodes()
	}
	return client.Nodes()
}

func errorResults(n int, err error) []rueidis.RedisResult {
	results := make([]rueidis.RedisResult, n)
	for i := range results {
		results[i] = rueidis.NewErrorResult(err)
	}
	return results
}
