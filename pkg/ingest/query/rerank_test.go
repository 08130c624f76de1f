package query_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	r.Reads.SetNow(func() time.Time { return now })
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
	now = now.Add(time.Second)
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
	now = now.Add(time.Minute)
	res, err = search(t.Context())
	require.NoError(t, err, "the service has a part of a search's time")
	require.False(t, *res.Reranked)

	now = now.Add(time.Minute)
	ctx, leave := context.WithCancel(t.Context())
	r.Reads.SetReranker(rerankFunc(func(ctx context.Context, _ string, _ []string) ([]float64, error) {
		leave()
		return nil, ctx.Err()
	}), 4)
	_, err = search(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// judgement scores texts by a sum of their characters, some alike: an order that is not the search's.
func judgement(text string) float64 {
	sum := 0
	for i, c := range []byte(text) {
		sum += (i%7 + 1) * int(c)
	}
	return float64(sum % 17)
}

// Pages of a reranked search fit together, also when hits are grouped: the first hits of the search stand in the service's order,
// the others behind them in the search's own, each once, and the groups are in the order of their best.
func TestRerankedPages(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		const documents, each = 31, 8 // more than are grouped at first
		for d := range documents {
			var text []string
			for n := range each {
				text = append(text, fmt.Sprintf("otter %d.%d%s", d, n, strings.Repeat(" and more", (7*d+n)%11)))
			}
			lines(w, text...)
		}
		asked := 0
		service := rerankFunc(func(_ context.Context, _ string, texts []string) (scores []float64, err error) {
			asked++
			for _, text := range texts {
				scores = append(scores, judgement(text))
			}
			return scores, nil
		})
		everyMode(t, func(mode ingest.SearchMode) {
			r.Reads.SetReranker(nil, 0)
			var plain []ingest.SearchHit
			for _, p := range walk(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, TopK: 50}, func() {}) {
				plain = append(plain, p.Hits...)
			}
			require.Len(t, plain, documents*each)
			for _, depth := range []int{32, 75} {
				r.Reads.SetReranker(service, depth)
				want := slices.Clone(plain)
				slices.SortStableFunc(want[:depth], func(a, b ingest.SearchHit) int {
					return cmp.Compare(judgement(b.Text), judgement(a.Text))
				})
				for _, k := range []int{7, 32, 50} {
					var got []string
					pages := walk(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, TopK: k}, func() {})
					for _, p := range pages {
						require.True(t, *p.Reranked)
						for _, h := range p.Hits {
							require.Equal(t, len(got) < depth, h.RerankScore != nil, "%s %d", mode, len(got))
							got = append(got, h.Text)
						}
					}
					require.Equal(t, texts(ingest.SearchResult{Hits: want}), got, "%s, %d reranked, pages of %d", mode, depth, k)
				}

				asked = 0
				var groups [][]string
				pages := walk(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, TopK: 4, PerDocument: 3}, func() {})
				for _, p := range pages {
					require.False(t, p.Partial, mode)
					for _, g := range p.Groups {
						groups = append(groups, texts(ingest.SearchResult{Hits: g}))
					}
				}
				require.Equal(t, len(pages), asked, "once a page, however deep it looks")
				at, wanted := map[string]int{}, [][]string{}
				for _, h := range want {
					i, known := at[h.DocumentID]
					switch {
					case !known:
						at[h.DocumentID] = len(wanted)
						wanted = append(wanted, []string{h.Text})
					case len(wanted[i]) < 3:
						wanted[i] = append(wanted[i], h.Text)
					}
				}
				require.Len(t, groups, documents)
				for i, g := range groups {
					require.Equal(t, wanted[i][:len(g)], g, "%s, %d reranked, group %d", mode, depth, i)
				}
			}
		})
	})
}

// A service that fails is left alone, twice as long each time: searches go on without it at once, and one at a time tries it again.
func TestAFailingRerankerIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	w.Process(w.Upload("otter\notter swims").Task.ID)
	now := time.Unix(0, 0)
	r.Reads.SetNow(func() time.Time { return now })
	asked, broken := 0, true
	service := func(ctx context.Context, query string, texts []string) ([]float64, error) {
		if asked++; broken {
			now = now.Add(2 * time.Second) // its time limit
			return nil, errors.New("no whole answer within 2s")
		}
		return byLength(ctx, query, texts)
	}
	r.Reads.SetReranker(rerankFunc(service), 4)
	search := func(ctx context.Context) (reranked bool, err error) {
		res, err := r.Reads.Search(ctx, w.Caller, ingest.SearchRequest{Query: "otter", Mode: ingest.SearchText})
		return err == nil && *res.Reranked, err
	}
	asks := func(want int) {
		t.Helper()
		asked = 0
		for range 3 {
			reranked, err := search(t.Context())
			require.NoError(t, err)
			require.Equal(t, !broken && want > 0, reranked)
		}
		require.Equal(t, want, asked)
	}
	for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
		asks(1)
		now = now.Add(time.Duration(seconds)*time.Second - 1)
		asks(0)
		now = now.Add(1)
	}

	// Who tries it and leaves has learned nothing, and the next one tries. Others do not wait for who tries.
	ctx, leave := context.WithCancel(t.Context())
	r.Reads.SetReranker(rerankFunc(func(ctx context.Context, _ string, _ []string) ([]float64, error) {
		r.Reads.SetReranker(rerankFunc(service), 4)
		asks(0)
		leave()
		return nil, ctx.Err()
	}), 4)
	_, err := search(ctx)
	require.ErrorIs(t, err, context.Canceled)
	broken = false
	asks(3)
	broken = true
	asks(1)
	now = now.Add(time.Second)
	broken = false
	asks(3)
}

// Failures of requests that were on their way when the first one failed count once.
func TestFailuresOfOneOutageCountOnce(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	w.Process(w.Upload("otter\notter swims").Task.ID)
	now := time.Unix(0, 0)
	r.Reads.SetNow(func() time.Time { return now })
	asked := 0
	search := func() {
		_, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "otter", Mode: ingest.SearchText})
		require.NoError(t, err)
	}
	r.Reads.SetReranker(rerankFunc(func(context.Context, string, []string) ([]float64, error) {
		if asked++; asked < 5 {
			search() // begins before this one fails
		}
		now = now.Add(time.Millisecond)
		return nil, errors.New("refused")
	}), 4)
	search()
	require.Equal(t, 5, asked)
	now = now.Add(time.Second)
	search()
	require.Equal(t, 6, asked, "it was left alone for the time of one failure")
}
