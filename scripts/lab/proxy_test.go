package lab

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

func TestHTTPProxyAnswersInTheServersPlace(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "whole answer") }))
	t.Cleanup(server.Close)
	p, err := NewHTTPProxy(server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	client := NewClient("http://" + p.Addr)

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
