package query

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
)

// depth is how many hits are looked for when so many are wanted: those that are to be ordered anew may rise from below.
func (r *Reads) depth(wanted int) int {
	if r.reranker == nil {
		return wanted
	}
	return max(wanted, r.rerankTop)
}

// rerank orders the first hits anew by the reranking service. When that fails, the order stays and the answer says so: a search
// does not depend on it. It is asked once in a search, however often that looks deeper, and always about the same hits, so that
// pages fit together.
func (s *searching) rerank(ctx context.Context, f *found) error {
	first := f.Hits[:min(s.r.rerankTop, len(f.Hits))]
	if s.r.reranker == nil || len(first) == 0 {
		return nil
	}
	if s.reranked == nil {
		if err := s.askReranker(ctx, first); err != nil {
			return err
		}
	}
	f.Reranked = s.reranked
	if !*s.reranked {
		return nil
	}
	for i := range first {
		if score, known := s.scores[placeOf(first[i])]; known {
			first[i].RerankScore = &score
		}
	}
	slices.SortStableFunc(first, func(a, b ingest.SearchHit) int { return cmp.Compare(judged(b), judged(a)) })
	return nil
}

// judged is the service's score; a hit that became visible after it was asked goes behind the others.
func judged(h ingest.SearchHit) float64 {
	if h.RerankScore == nil {
		return math.Inf(-1)
	}
	return *h.RerankScore
}

// askReranker keeps the scores of hits. Its errors are those of the caller's context.
func (s *searching) askReranker(ctx context.Context, hits []ingest.SearchHit) error {
	texts := make([]string, len(hits))
	for i, h := range hits {
		texts[i] = h.Text
	}
	end, _ := ctx.Deadline()
	limited, cancel := context.WithTimeout(ctx, time.Until(end)/2) // so that the hits are returned in time
	defer cancel()
	scores, err := s.r.reranker.Rerank(limited, s.query, texts)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("rerank: %w", err)
		}
		s.r.trouble.Log(ctx, slog.LevelWarn, "rerank", "ingest: a search without reranking", slog.Any("error", err))
		s.reranked = new(false)
		return nil
	}
	s.reranked, s.scores = new(true), make(map[place]float64, len(hits))
	for i, h := range hits {
		s.scores[placeOf(h)] = scores[i]
	}
	return nil
}
