package textindex

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millweir/millweir/pkg/ingest/textindex/analysis"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// BM25 with the weights of fields inside the frequency (Robertson, Zaragoza, Taylor 2004: "Simple BM25 extension to multiple
// weighted fields"). The values are the usual ones; the weights are measured on the questions of `make bench BENCH=search-quality`.
const (
	saturation    = 1.2  // k1
	lengthShare   = 0.75 // b
	titleWeight   = 1.5  // of a word in the title, where 1 is a word of the text
	headingWeight = 1.0
	// prefixTerms bounds the terms that a prefix stands for.
	prefixTerms = 256
	// phraseBonus is what a phrase counts more than its rarest word.
	phraseBonus = 1.5
)

// Found is a segment that matches a query.
type Found struct {
	part.Segment
	Score float64 // BM25
	// Share is how much of the query the segment has, from 0 to 1; a rare word is more of it than a frequent one. It is the score
	// divided by that of a segment of average length that has each word once.
	Share float64
}

// Results are what a search has found.
type Results struct {
	Found []Found
	// Suggestion is the query with words that no segment has replaced by near ones; empty: none was.
	Suggestion string
	weights    []map[string]float64 // of the terms of each clause
}

// ranking is one query over a base's parts.
type ranking struct {
	parts    []*part.Part
	fetch    fetcher // nil: the parts are in memory
	clauses  []*clause
	segments int     // of all parts
	average  float64 // words of a segment
}

// clause is a clause of the query and what the parts have of it.
type clause struct {
	analysis.Clause
	idf   float64      // of a phrase, with its bonus
	lists [][]weighted // by part: the terms of a clause of one word
	found [][]match    // by part: the segments of a phrase
	known [256]float64 // times of the least values
	// corrected are the terms that stand in for a word that no segment has; the most frequent first.
	corrected []string
}

// weighted is a term, what it counts where 1 is the word itself, and how rare its variant is.
type weighted struct {
	part.Term
	weight, idf float64
}

// match is a segment and how often a phrase stands in it.
type match struct {
	ordinal int
	times   float64
}

// rank finds the n best segments, best first; equal ones by version and index. allowed limits the versions; nil: all.
func rank(
	ctx context.Context, parts []*part.Part, fetch fetcher, query string, n int, allowed func(version string) bool,
) (Results, error) {
	r, q := &ranking{parts: parts, fetch: fetch}, analysis.Parse(query)
	var tokens int64
	for _, p := range parts {
		r.segments += p.Segments()
		tokens += p.Tokens()
	}
	if r.segments == 0 || q.Empty() {
		return Results{}, nil
	}
	r.average = max(1, float64(tokens)/float64(r.segments))
	if err := r.fetchTerms(ctx, q.Clauses); err != nil {
		return Results{}, err
	}
	for _, c := range q.Clauses {
		one := &clause{Clause: c}
		if err := r.lookUp(ctx, one); err != nil {
			return Results{}, fmt.Errorf("look %q up: %w", c.Text, err)
		}
		r.clauses = append(r.clauses, one)
	}
	best := &found{}
	if err := r.traverse(ctx, n, allowed, best); err != nil {
		return Results{}, err
	}
	slices.SortFunc(*best, func(a, b Found) int { return -compareFound(a, b) })
	full := r.full()
	for i := range *best {
		(*best)[i].Share = min(1, (*best)[i].Score/full)
	}
	return Results{Found: *best, Suggestion: r.suggest(query), weights: r.weights()}, nil
}

// fetchTerms fetches what the dictionaries say of a query's words.
func (r *ranking) fetchTerms(ctx context.Context, clauses []analysis.Clause) error {
	if r.fetch == nil {
		return nil
	}
	var spans []span
	for _, c := range clauses {
		look := (*part.Part).Span
		if c.Prefix {
			look = (*part.Part).PrefixSpan
		}
		for _, v := range slices.Concat(c.Words...) {
			for i, p := range r.parts {
				spans = append(spans, span{i, look(p, v.Term)})
			}
		}
	}
	return r.fetch(ctx, spans)
}

// fetchPostings fetches the first postings of terms, which are listed by part.
func (r *ranking) fetchPostings(ctx context.Context, terms [][]part.Term) error {
	if r.fetch == nil {
		return nil
	}
	var spans []span
	for i, some := range terms {
		for _, t := range some {
			spans = append(spans, span{i, t.Span()})
		}
	}
	return r.fetch(ctx, spans)
}

// full is the score of a segment of average length that has each word of the query once. A word that no segment has counts as
// the rarest one would.
func (r *ranking) full() (sum float64) {
	for _, c := range r.clauses {
		most := 0.0
		switch {
		case c.Exclude:
			continue
		case c.found != nil:
			most = c.idf
		default:
			for _, list := range c.lists {
				for _, t := range list {
					most = max(most, r.bm25(t.idf, t.weight, int(r.average)))
				}
			}
		}
		if most == 0 {
			most = r.rarity(0)
		}
		sum += most
	}
	return sum
}

// lookUp finds a clause's terms and how rare they are. Each variant has a rarity of its own: with that of the most frequent
// one, a word that stands in one segment counts no more than its stem, or a bigram of it, that stands in many.
func (r *ranking) lookUp(ctx context.Context, c *clause) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.Phrase && len(c.Words) > 1 {
		return r.lookUpPhrase(ctx, c)
	}
	c.lists = make([][]weighted, len(r.parts))
	known := false
	for _, v := range c.Words[0] {
		segments := 0 // of all parts
		for i, p := range r.parts {
			terms, err := r.termsOf(ctx, p, v.Term, c.Prefix)
			if err != nil {
				return err
			}
			for _, t := range terms {
				c.lists[i] = append(c.lists[i], weighted{Term: t, weight: v.Weight})
				segments += t.Segments
			}
		}
		known = known || segments > 0
		for _, list := range c.lists {
			for n := range list {
				if list[n].idf == 0 {
					list[n].idf = r.rarity(min(segments, r.segments))
				}
			}
		}
	}
	if word, ok := correctable(c.Clause); ok && !known {
		return r.correct(ctx, c, word)
	}
	return nil
}

// termsOf are the terms of a part that a term, or a prefix, stands for.
func (r *ranking) termsOf(ctx context.Context, p *part.Part, term string, prefix bool) ([]part.Term, error) {
	if prefix {
		return p.Prefix(ctx, term, prefixTerms)
	}
	t, err := p.Term(ctx, term)
	if err != nil || t.Segments == 0 {
		return nil, err
	}
	return []part.Term{t}, nil
}

// rarity is BM25's inverse frequency of what stands in n segments; never negative.
func (r *ranking) rarity(n int) float64 {
	return math.Log1p((float64(r.segments) - float64(n) + 0.5) / (float64(n) + 0.5))
}

// bm25 is what a term adds to the score of a segment of so many words in which it stands so often. It rises with times and
// falls with the length, or the bounds of traverse.go are none.
func (r *ranking) bm25(idf, times float64, length int) float64 {
	norm := saturation * (1 - lengthShare + lengthShare*float64(length)/r.average)
	return idf * times * (saturation + 1) / (times + norm)
}

// times is how often a term of a value stands in the segment's fields that the clause asks for, weighted.
func (c *clause) times(value int) float64 {
	text, heading, title := float64(part.In(value, part.Text)), headingWeight*float64(part.In(value, part.Heading)), titleWeight*float64(part.In(value, part.Title))
	switch c.Field {
	case analysis.Title:
		return title
	case analysis.Heading:
		return heading
	case analysis.Text:
		return text
	default:
		return text + heading + title
	}
}

// found is a heap of the best segments, the worst first.
type found []Found

// compareFound orders by score, and equal ones by version and index: the older is the better.
func compareFound(a, b Found) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), -cmp.Compare(a.Version, b.Version), -cmp.Compare(a.Index, b.Index))
}

// offer keeps a segment if it is among the n best.
func (f *found) offer(s Found, n int) {
	switch {
	case len(*f) < n:
		heap.Push(f, s)
	case compareFound(s, (*f)[0]) > 0:
		(*f)[0] = s
		heap.Fix(f, 0)
	}
}

func (f found) Len() int           { return len(f) }
func (f found) Less(i, j int) bool { return compareFound(f[i], f[j]) < 0 }
func (f found) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *found) Push(x any)        { *f = append(*f, x.(Found)) } //nolint:errcheck // nothing else is pushed
func (f *found) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}
