package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/lab/apiclient"
)

// proxied is a web server behind a proxy, and a function that asks it on a connection of its own.
func proxied(t *testing.T) (*Proxy, func(limit time.Duration) error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(server.Close)
	p, err := NewProxy("web", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr, http.NoBody)
		require.NoError(t, err)
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
}

func TestProxyFaultsComeAndGo(t *testing.T) {
	t.Parallel()
	p, ask := proxied(t)
	require.NoError(t, ask(time.Minute))

	require.NoError(t, p.Slow(300*time.Millisecond, 0))
	started := time.Now()
	require.NoError(t, ask(time.Minute))
	require.GreaterOrEqual(t, time.Since(started), 300*time.Millisecond)

	require.NoError(t, p.Cut())
	err := ask(time.Minute)
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, p.Silence())
	require.ErrorIs(t, ask(200*time.Millisecond), context.DeadlineExceeded)

	p.Refuse()
	var op *net.OpError
	require.ErrorAs(t, ask(time.Minute), &op)
	require.Equal(t, "dial", op.Op)

	require.NoError(t, p.Heal())
	require.NoError(t, ask(time.Minute))
}

// Processes are started while the proxy refuses: a child has its listening socket between fork and exec.
func TestRefusalsAreRefusalsBesideForks(t *testing.T) {
	t.Parallel()
	p, ask := proxied(t)
	ctx, stop := context.WithCancel(t.Context())
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run() // the last one is killed
			}
		})
	}
	defer forks.Wait()
	defer stop()
	for range 300 {
		p.Refuse()
		var op *net.OpError
		require.ErrorAs(t, ask(time.Minute), &op)
		require.Equal(t, "dial", op.Op)
		require.NoError(t, p.Heal())
	}
}

func TestForgottenConnectionsStaySilentAndNewOnesWork(t *testing.T) {
	t.Parallel()
	p, ask := proxied(t)
	dial := func() net.Conn {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", p.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	answer := func(c net.Conn, limit time.Duration) error {
		require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
		}
		return err
	}
	old := dial()
	require.NoError(t, answer(old, time.Minute))
	require.NoError(t, p.Forget())
	require.ErrorIs(t, answer(old, 2*forgetWindow), os.ErrDeadlineExceeded)
	require.NoError(t, ask(time.Minute), "a new one works")
	require.NoError(t, p.Heal())
	require.NoError(t, old.SetDeadline(time.Now().Add(time.Minute)))
	_, err := old.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "an old one is closed at the end")
}

func TestHTTPProxyAnswersInTheServersPlace(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "whole answer") }))
	t.Cleanup(server.Close)
	p, err := NewHTTPProxy(server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	client := apiclient.NewClient("http://" + p.Addr)

	status, body, err := client.Get(t.Context(), "/")
	require.NoError(t, err)
	require.Equal(t, "200 whole answer", strconv.Itoa(status)+" "+string(body))
	require.Zero(t, p.Set(Answer(http.StatusTooManyRequests, 3*time.Second)))
	status, _, err = client.Get(t.Context(), "/")
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, 1, p.Set(CutBody))
	_, _, err = client.Get(t.Context(), "/")
	require.Error(t, err)
	require.Positive(t, p.Set(nil))
	server.Close()
	_, _, err = client.Get(t.Context(), "/")
	require.Error(t, err, "a server that is away has no answer, not a 502")
}
