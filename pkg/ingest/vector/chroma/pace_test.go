package chroma_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
)

// paceServer takes a time for each row that it is given, by a clock of the test's, and keeps the requests' sizes.
type paceServer struct {
	mu    sync.Mutex
	now   time.Time
	row   time.Duration
	gone  bool // it takes the time and then fails
	sizes []int
}

func (p *paceServer) clock() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *paceServer) handle(w http.ResponseWriter, r *http.Request) {
	var body struct {
		IDs []string `json:"ids"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(time.Duration(len(body.IDs)) * p.row)
	p.sizes = append(p.sizes, len(body.IDs))
	if p.gone {
		answer(w, http.StatusInternalServerError, `{"error":"InternalError","message":"database is locked"}`)
		return
	}
	answer(w, http.StatusOK, `{}`)
}

// write upserts n rows and returns the sizes of the requests.
func (p *paceServer) write(t *testing.T, s *chroma.Store, n int) []int {
	t.Helper()
	rows := make([]ingest.Vector, n)
	for i := range rows {
		rows[i] = ingest.Vector{ID: fmt.Sprintf("%064d", i), DocumentID: "d", Birth: "b", Values: []float32{1, 2}}
	}
	p.sizes = nil
	err := s.Upsert(context.WithoutCancel(t.Context()), "base", rows)
	require.Equal(t, p.gone, err != nil, "%v", err)
	return p.sizes
}

// A server that is slow is asked for little at a time, and for much again when it is quick (issue: silent for 10–46 s).
func TestASlowServerGetsSmallRequests(t *testing.T) {
	t.Parallel()
	p := &paceServer{now: time.Unix(1_700_000_000, 0), row: time.Millisecond}
	cfg := chroma.NewDefaultConfig()
	cfg.BaseURL = writeServer(t, p.handle).URL
	s, err := chroma.New(cfg)
	require.NoError(t, err)
	s.SetClock(p.clock)
	t.Cleanup(func() { _ = s.Close() })

	require.Equal(t, []int{400, 400}, p.write(t, s, 800), "a quick server")
	p.row = 100 * time.Millisecond // 40 s for a full request
	require.Equal(t, []int{400, 200, 100, 50, 25, 25}, p.write(t, s, 800))
	require.Equal(t, []int{25, 25, 25, 25}, p.write(t, s, 100), "no request takes longer than slowWrite now")
	p.row = time.Millisecond
	require.Equal(t, []int{25, 50, 100, 200, 400, 25}, p.write(t, s, 800))

	p.row, p.gone = 100*time.Millisecond, true
	p.write(t, s, 400)
	p.gone = false
	require.Equal(t, 200, p.write(t, s, 400)[0], "a request that was given up is not sent again as it was")
}
