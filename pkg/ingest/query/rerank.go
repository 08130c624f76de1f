package query

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/pause"
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

const (
	// restFirst and restMost bound how long a service that failed is left alone; the time doubles with each failure.
	restFirst = time.Second
	restMost  = 30 * time.Second
)

// rest leaves a service alone that failed, so that no search waits for it. Then one request at a time tries it. It is safe for
// concurrent use.
type rest struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // when it may be tried; zero: somebody tries it
	tried    time.Time // when the last failure was seen, or the present try began
}

// over reports whether the service is asked now.
func (r *rest) over(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures == 0 {
		return true
	}
	if r.until.IsZero() || now.Before(r.until) {
		return false
	}
	r.until, r.tried = time.Time{}, now
	return true
}

// end says that the service has answered.
func (r *rest) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = 0
}

// failed counts a failure, unless the request began before the last one.
func (r *rest) failed(began, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures > 0 && began.Before(r.tried) {
		return
	}
	r.until, r.tried = now.Add(pause.Nth(r.failures, restFirst, restMost)), now
	r.failures++
}

// unknown says that a request has ended without a word about the service: if it was to try it, the next one does.
func (r *rest) unknown(began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until.IsZero() && !began.Before(r.tried) {
		r.until = began
	}
}

// askReranker keeps the scores of hits. Its errors are those of the caller's context.
func (s *searching) askReranker(ctx context.Context, hits []ingest.SearchHit) error {
	texts := make([]string, len(hits))
	for i, h := range hits {
		texts[i] = h.Text
	}
	began := s.r.now()
	if !s.r.rest.over(began) {
		s.reranked = new(false)
		return nil
	}
	end, _ := ctx.Deadline()
	limited, cancel := context.WithTimeout(ctx, time.Until(end)/2) // so that the hits are returned in time
	defer cancel()
	scores, err := s.r.reranker.Rerank(limited, s.query, texts)
	switch {
	case err == nil:
		s.r.rest.end()
	case ctx.Err() != nil:
		s.r.rest.unknown(began)
		return fmt.Errorf("rerank: %w", err)
	default:
		s.r.rest.failed(began, s.r.now())
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
