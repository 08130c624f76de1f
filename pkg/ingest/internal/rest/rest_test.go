package rest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ms, seconds string
		want        time.Duration
	}{
		"nothing":        {"", "", 0},
		"seconds":        {"", "3", 3 * time.Second},
		"fraction":       {"", " 0.5 ", 500 * time.Millisecond},
		"milliseconds":   {"250", "9", 250 * time.Millisecond},
		"date":           {"", now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second},
		"date gone by":   {"", now.Add(-time.Hour).Format(http.TimeFormat), 0},
		"negative":       {"-1", "-5", 0},
		"nonsense":       {"x", "soon", 0},
		"not a number":   {"NaN", "4", 4 * time.Second},
		"never":          {"", "Inf", time.Hour},
		"too long":       {"", "1e30", time.Hour},
		"date far ahead": {"", now.AddDate(9, 0, 0).Format(http.TimeFormat), time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			header.Set("Retry-After-Ms", c.ms)
			header.Set("Retry-After", c.seconds)
			require.Equal(t, c.want, (&rest.StatusError{Header: header}).RetryAfter(now))
		})
	}
}

func TestRetryable(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{400: false, 404: false, 408: true, 409: false, 425: true, 429: true, 500: true, 501: false, 503: true, 529: true} {
		require.Equal(t, want, (&rest.StatusError{Status: status}).Retryable(), status)
		for word, forced := range map[string]bool{"true": true, "false": false} {
			header := http.Header{"X-Should-Retry": {word}}
			require.Equal(t, forced, (&rest.StatusError{Status: status, Header: header}).Retryable(), status)
		}
	}
}

func TestRetryBounds(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	run := func(ctx context.Context, after time.Duration, again bool) (n int, err error) {
		err = rest.Retry(ctx, func() error { n++; return broken }, func(error) (bool, time.Duration) { return again, after })
		return n, err
	}
	for name, c := range map[string]struct {
		after time.Duration
		again bool
		tries int
	}{
		"no wait named": {0, true, 3}, "final": {0, false, 1}, "too long": {3 * time.Second, true, 1},
		"does not fit twice": {1100 * time.Millisecond, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // its time is not the machine's
				n, err := run(t.Context(), c.after, c.again)
				require.ErrorIs(t, err, broken)
				require.Equal(t, c.tries, n)
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n, _ := run(ctx, time.Second, true)
	require.Equal(t, 1, n)
}

func TestCauses(t *testing.T) {
	t.Parallel()
	client, err := rest.New("http://u:hunter2@h/p/?k=v", nil, "s3cret")
	require.NoError(t, err)
	require.Equal(t, "POST http://h/p/x", client.Op(rest.Call{Method: "POST", Path: "/x"}))
	for body, want := range map[string]string{
		`{"error":{"message":"no s3cret","code":1}}`: "no ***",
		`{"error":"Kind","message":"what hunter2"}`:  "Kind: what ***",
		`{"error":"flat"}`:                           "flat",
		`{"message":"m"}`:                            "m",
		`{"detail":[{"msg":"d"}]}`:                   `[{"msg":"d"}]`,
		"plain\n  text\x00\xff":                      "plain text�",
		`{"status":{"error":"q"},"time":0.1}`:        "q",
		`{"status":"error","time":0.1}`:              `{"status":"error","time":0.1}`,
		`{"other":1}`:                                `{"other":1}`,
		`{"error":{"message":""}}`:                   `{"error":{"message":""}}`,
		strings.Repeat("长", 500):                     strings.Repeat("长", 400) + "…",
	} {
		require.Equal(t, want, client.Cause([]byte(body)))
	}
}

func TestBadBaseShowsNoSecret(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "h", "ftp://u:s3cret@h", "http://", "http://u:s3cret@h:port", "://"} {
		_, err := rest.New(base, nil)
		require.ErrorIs(t, err, rest.ErrBaseURL, base)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestBaseQueryAndUserAreSent(t *testing.T) {
	t.Parallel()
	var query, user, password string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		user, password, _ = r.BasicAuth()
	}))
	defer server.Close()
	client, err := rest.New(strings.Replace(server.URL, "://", "://u:p@", 1)+"/?api-version=1", nil)
	require.NoError(t, err)
	_, err = client.Do(t.Context(), rest.Call{Method: "GET", Path: "/x", MaxReply: 10, Timeout: time.Minute})
	require.NoError(t, err)
	require.Equal(t, []string{"api-version=1", "u", "p"}, []string{query, user, password})
	_, err = client.Do(t.Context(), rest.Call{Method: "GET", Path: "/x", Query: "wait=true&n=a%26b", MaxReply: 10, Timeout: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "api-version=1&wait=true&n=a%26b", query)
}
