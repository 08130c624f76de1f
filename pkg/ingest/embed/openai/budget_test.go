package openai_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingest/embed/openai"
	"github.com/millweir/millweir/pkg/ratelimit"
)

// spent is a limiter that keeps what was taken, and says how long to wait.
type spent struct {
	mu    sync.Mutex
	wait  time.Duration
	taken [][]int64
	most  []time.Duration
	keys  map[string]bool
}

func (s *spent) Spend(_ context.Context, key string, most time.Duration, costs ...int64) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]bool{}
	}
	s.keys[key] = true
	s.taken, s.most = append(s.taken, costs), append(s.most, most)
	return s.wait, nil
}

func budgeted(t *testing.T, base string, limiter ratelimit.Limiter, change func(*openai.Config)) *openai.Embedder {
	t.Helper()
	cfg := openai.NewDefaultConfig()
	cfg.BaseURL, cfg.Model = base, "test-model"
	change(&cfg)
	e, err := openai.New(cfg, limiter)
	require.NoError(t, err)
	return e
}

func TestEachRequestIsPaidFromTheBudget(t *testing.T) {
	t.Parallel()
	p := newProvider(t, recorded[openai.APICohere])
	limiter := &spent{}
	e := budgeted(t, p.URL, limiter, func(c *openai.Config) { c.API, c.Requests, c.Tokens = openai.APICohere, 100, 1000 })
	texts := []string{"sixteen letters!", "もじ"}
	_, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, [][]int64{{1, 8}, {0, -6}}, limiter.taken, "estimated first, then corrected by what the service says")
	require.Equal(t, []time.Duration{2 * time.Minute, ratelimit.Always}, limiter.most)
	limiter.taken = nil
	_, err = e.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, [][]int64{{1, 2}}, limiter.taken, "learned")
	require.Equal(t, map[string]bool{"http/test-model": true}, limiter.keys)
}

func TestTriesArePaidToo(t *testing.T) {
	t.Parallel()
	undisturbed(func() {
		server := embedtest.Start(t, embedtest.Options{})
		server.Set(embedtest.Fault{Kind: embedtest.Throttle, Times: 2})
		limiter := &spent{}
		e := budgeted(t, server.URL+"/v1", limiter, func(c *openai.Config) { c.Requests = 100 })
		if _, err := e.Embed(t.Context(), textsOf(2)); err == nil {
			require.Equal(t, [][]int64{{1}, {1}, {1}}, limiter.taken)
		}
	})
}

func TestAnEmptyBudgetIsAThrottle(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{})
	limiter := &spent{wait: 3 * time.Minute}
	e := budgeted(t, server.URL+"/v1", limiter, func(c *openai.Config) { c.Tokens = 1000 })
	_, err := e.Embed(t.Context(), textsOf(2))
	f := requireFailure(t, err, ingest.CodeThrottled, false)
	require.True(t, f.Throttled, "no attempt is counted")
	require.Equal(t, 3*time.Minute, f.RetryAfter)
	require.Contains(t, f.Remedy, "EMBEDDING_TOKENS_PER_MINUTE")
	require.Empty(t, server.Effects())

	_, err = embed.ForQueries(e).Embed(t.Context(), textsOf(1))
	require.NoError(t, err, "a search waits for nobody")
	require.Equal(t, ratelimit.Always, limiter.most[len(limiter.most)-1])

	limiter.wait = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = e.Embed(ctx, textsOf(2))
	require.ErrorIs(t, err, context.DeadlineExceeded, "a wait ends with its run")
	require.Len(t, server.Effects(), 1)
}

// A request never costs more than a minute brings: a service would refuse it for ever.
func TestNoRequestIsLargerThanTheBudget(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{})
	limiter := &spent{}
	e := budgeted(t, server.URL+"/v1", limiter, func(c *openai.Config) { c.Tokens = 30 })
	texts := make([]string, 7)
	for i := range texts {
		texts[i] = fmt.Sprintf("forty letters and a number to tell: %04d", i) // 11 tokens
	}
	vectors, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	requireVectors(t, texts, vectors)
	require.Equal(t, [][]int64{{22}, {22}, {22}, {11}}, limiter.taken)
}

// With 429 to every second request the work ends, each request is paid for, and nothing is embedded twice.
func TestABudgetAndAServiceThatRefusesEverySecond(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{})
	n := 0
	server.Set(embedtest.Fault{Kind: embedtest.Throttle, Match: func(embedtest.Effect) bool { n++; return n%2 == 0 }})
	limiter := &spent{}
	e := budgeted(t, server.URL+"/v1", limiter, func(c *openai.Config) { c.Requests = 6000 })
	for i := range 20 {
		texts := []string{fmt.Sprint("text ", i)}
		for {
			vectors, err := e.Embed(t.Context(), texts)
			if err == nil {
				requireVectors(t, texts, vectors)
				break
			}
			require.True(t, requireFailure(t, err, ingest.CodeThrottled, false).Throttled)
		}
	}
	require.Len(t, limiter.taken, len(server.Effects()))
	require.Greater(t, len(limiter.taken), 20)
}
