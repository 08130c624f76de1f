package redisq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// errNotConnected is the cause while no sentinel has answered yet.
var errNotConnected = errors.New("no sentinel has named a primary yet")

// lazyClient is a client of rueidis' Sentinel mode, which refuses to exist before a sentinel and a primary have answered.
// No service may depend on that to start (design D16), so it is made by the first command that succeeds in it.
type lazyClient struct {
	option  rueidis.ClientOption
	builder rueidis.Client // only its builder is used

	mu      sync.Mutex
	client  rueidis.Client // nil until connected
	attempt chan struct{}  // open while somebody connects
	failed  error          // of the last attempt
	closed  bool
}

var _ rueidis.Client = (*lazyClient)(nil)

func newLazyClient(option rueidis.ClientOption) *lazyClient {
	offline := rueidis.ClientOption{
		InitAddress: option.InitAddress[:1], ForceSingleClient: true, DisableCache: true,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return nil, errNotConnected
		},
	}
	builder, _ := rueidis.NewClient(offline) // it never dials: its error is ours
	return &lazyClient{option: option, builder: builder}
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
		return nil, fmt.Errorf("%w: %w", errNotConnected, ctx.Err())
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = nil
	switch {
	case err != nil:
		l.failed = fmt.Errorf("%w: %w", errNotConnected, err)
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
	l.builder.Close()
}

// The rest passes every call on, or fails it with the reason.

// B returns the command builder.
func (l *lazyClient) B() rueidis.Builder { return l.builder.B() }

// Mode is always Sentinel.
func (l *lazyClient) Mode() rueidis.ClientMode { return rueidis.ClientModeSentinel }

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
		return l.builder.DoStream(ctx, cmd) // it is offline: the result says so
	}
	return client.DoStream(ctx, cmd)
}

// DoMultiStream runs several commands and streams their answers; not before a primary is known.
func (l *lazyClient) DoMultiStream(ctx context.Context, multi ...rueidis.Completed) rueidis.MultiRedisResultStream {
	client, err := l.get(ctx)
	if err != nil {
		return l.builder.DoMultiStream(ctx, multi...)
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
		return l.builder.Dedicate()
	}
	return client.Dedicate()
}

// Nodes are the servers by address; the sentinels' addresses with clients that fail before a primary is known.
func (l *lazyClient) Nodes() map[string]rueidis.Client {
	client, err := l.get(context.Background())
	if err != nil {
		return l.builder.Nodes()
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
