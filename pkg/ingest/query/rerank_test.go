package query_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/telemetry"
)

// rerankFunc is a reranking service.
type rerankFunc func(ctx context.Context, query string, texts []string) ([]float64, error)

func (f rerankFunc) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	return f(ctx, query, texts)
}

// byLength scores texts by their length: the longest fits best.
func byLength(_ context.Context, _ string, texts []string) (scores []float64, err error) {
	for _, text := range texts {
		scores = append(scores, float64(len(text)))
	}
	return scores, nil
}

// texts are those of hits.
func texts(res ingest.SearchResult) (out []string) {
	for _, h := range res.Hits {
		out = append(out, h.Text)
	}
	return out
}

// The service orders the first hits anew, whatever was looked into, and what it does not see stays behind them.
func TestRerank(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		w.Process(w.Upload("otter\notter swims\notter swims far\notter swims far away").Task.ID)
		for _, mode := range []ingest.SearchMode{ingest.SearchText, ingest.SearchVector, ingest.SearchHybrid} {
			search := func(k int) ingest.SearchResult {
				res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "otter", TopK: k, Mode: mode})
				require.NoError(t, err)
				require.Equal(t, mode, res.Mode)
				return res
			}
			r.Reads.SetReranker(nil, 0)
			plain := search(4)
			require.Len(t, plain.Hits, 4)
			require.Equal(t, "otter", plain.Hits[0].Text, mode)
			require.Nil(t, plain.Reranked)
			require.Nil(t, plain.Hits[0].RerankScore)

			r.Reads.SetReranker(rerankFunc(byLength), 4)
			res := search(4)
			require.True(t, *res.Reranked)
			require.Equal(t, []string{"otter swims far away", "otter swims far", "otter swims", "otter"}, texts(res), mode)
			require.InDelta(t, 20, *res.Hits[0].RerankScore, 0)
			require.InDelta(t, plain.Hits[0].Score, res.Hits[3].Score, 1e-9, "the score stays that of the search")
			res = search(1)
			require.Equal(t, []string{"otter swims far away"}, texts(res), "it rose from below what was wanted")
			if mode != ingest.SearchVector {
				require.Equal(t, [][2]int{{0, 5}}, res.Hits[0].Highlights)
			}

			r.Reads.SetReranker(rerankFunc(byLength), 2)
			res = search(4)
			require.ElementsMatch(t, texts(plain)[:2], texts(res)[:2])
			require.Greater(t, *res.Hits[0].RerankScore, *res.Hits[1].RerankScore)
			require.Equal(t, texts(plain)[2:], texts(res)[2:], "the others keep their places")
			require.Nil(t, res.Hits[2].RerankScore)
		}
		r.Reads.SetReranker(rerankFunc(func(context.Context, string, []string) ([]float64, error) {
			return nil, errors.New("asked about nothing")
		}), 4)
		res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "zeppelin", Mode: ingest.SearchText})
		require.NoError(t, err)
		require.Empty(t, res.Hits)
		require.Nil(t, res.Reranked)
	})
}

// A service that fails costs a search nothing but the new order: the answer says so, and the log once a minute.
func TestASearchDoesNotDependOnTheReranker(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	w.Process(w.Upload("otter\notter swims\notter swims far").Task.ID)
	var log bytes.Buffer
	now := time.Unix(0, 0)
	r.Reads.SetTrouble(telemetry.NewRepeated(slog.New(slog.NewTextHandler(&log, nil)), time.Minute, func() time.Time { return now }))
	search := func(ctx context.Context) (ingest.SearchResult, error) {
		return r.Reads.Search(ctx, w.Caller, ingest.SearchRequest{Query: "otter", TopK: 2, Mode: ingest.SearchText})
	}
	plain, err := search(t.Context())
	require.NoError(t, err)

	broken := true
	r.Reads.SetReranker(rerankFunc(func(ctx context.Context, query string, texts []string) ([]float64, error) {
		if broken {
			return nil, errors.New("POST http://h/rerank: no whole answer within 2s")
		}
		return byLength(ctx, query, texts)
	}), 4)
	for range 3 {
		res, err := search(t.Context())
		require.NoError(t, err)
		require.False(t, *res.Reranked)
		require.False(t, res.Partial, "nothing is missing")
		require.Equal(t, plain.Hits, res.Hits)
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	require.Contains(t, log.String(), "no whole answer within 2s")
	broken = false
	res, err := search(t.Context())
	require.NoError(t, err)
	require.True(t, *res.Reranked)
	broken = true
	_, err = search(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "also of a service that fails now and then")
	now = now.Add(time.Minute)
	_, err = search(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"))

	r.Reads.SetReranker(rerankFunc(func(ctx context.Context, _ string, _ []string) ([]float64, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}), 4)
	r.Reads.SetSearchTime(2 * time.Second)
	res, err = search(t.Context())
	require.NoError(t, err, "the service has a part of a search's time")
	require.False(t, *res.Reranked)

	ctx, leave := context.WithCancel(t.Context())
	r.Reads.SetReranker(rerankFunc(func(ctx context.Context, _ string, _ []string) ([]float64, error) {
		leave()
		return nil, ctx.Err()
	}), 4)
	_, err = search(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
