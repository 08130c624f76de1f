package apiclient

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoadRepeatsWhatBrokeOffAndRemembersWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	keys := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		keys <- r.Header.Get("Idempotency-Key")
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0.01")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable) // rude
		case 3:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"taskId":"t1"}`)
		case 4:
			w.WriteHeader(http.StatusConflict)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	r := Load{Target: NewClient(server.URL), Clients: 1, Count: 3, First: 7, Bytes: 100}.Run(t.Context())
	require.Equal(t, []string{"lab-7", "lab-7", "lab-7"}, []string{<-keys, <-keys, <-keys})
	require.Len(t, r.Accepted, 1)
	require.Equal(t, "report-7.txt", r.Accepted["t1"].Name)
	require.Equal(t, []int{2, 1, 1, 1, 0}, []int{r.Busy, r.Rude, r.Conflicts, len(r.Maybe), r.Unknown})
	require.Equal(t, map[int]int{http.StatusTeapot: 1}, r.Other)
}

func TestLoadWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	target := NewClient("http://127.0.0.1:1").As("", "", func(Call) { cancel() }) // after its first request
	l := Load{Target: target, Clients: 1, Bytes: 100}
	r := l.Run(ctx)
	require.Empty(t, r.Accepted)
	require.Len(t, r.Maybe, 1)
	require.Positive(t, r.Unknown)
}

func TestTextsDiffer(t *testing.T) {
	t.Parallel()
	a, b := Text(1, 10_000), Text(2, 10_000)
	require.Equal(t, a, Text(1, 10_000))
	require.NotEqual(t, a.Body, b.Body)
	require.Contains(t, string(a.Body), a.Mark)
	require.NotContains(t, string(b.Body), a.Mark)
	require.InDelta(t, 10_000, len(a.Body), 200)
}
