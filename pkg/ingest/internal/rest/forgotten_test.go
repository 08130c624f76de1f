package rest_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

// After a firewall has forgotten all connections each request waited out its limit on one dead idle connection after the other.
func TestOneTimeoutGivesUpIdleConnections(t *testing.T) {
	t.Parallel()
	const idle = 4
	var mu sync.Mutex
	known := map[string]bool{} // by the client's address
	forgotten := false
	var warm sync.WaitGroup
	warm.Add(idle)
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		dead := forgotten && known[r.RemoteAddr]
		known[r.RemoteAddr] = true
		first := !forgotten
		mu.Unlock()
		switch {
		case first:
			warm.Done()
			warm.Wait() // so that each has a connection of its own
		case dead:
			<-end
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	client, err := rest.New(server.URL, nil)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	var all sync.WaitGroup
	for range idle {
		all.Go(func() {
			_, _ = client.Do(t.Context(), rest.Call{Method: http.MethodGet, MaxReply: 10, Timeout: time.Minute})
		})
	}
	all.Wait()
	mu.Lock()
	forgotten = true
	require.Len(t, known, idle)
	mu.Unlock()

	call := rest.Call{Method: http.MethodGet, MaxReply: 10, Timeout: 5 * time.Second}
	_, err = client.Do(t.Context(), call)
	require.Error(t, err)
	_, err = client.Do(t.Context(), call)
	require.NoError(t, err, "the second try has a connection of its own")
}
