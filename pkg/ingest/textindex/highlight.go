package textindex

import (
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/textindex/analysis"
)

// Highlighter finds the words of a query in texts.
type Highlighter struct {
	terms    map[string]word
	prefixes []prefix
	begin    analysis.Beginnings
}

// word is the clause that a term belongs to, and what it counts: a rare one more.
type word struct {
	clause int
	weight float64
}

// prefix is what terms of a clause begin with.
type prefix struct {
	text string
	word
}

// weights are what the terms of each clause count; nil for one that is excluded.
func (r *ranking) weights() []map[string]float64 {
	out := make([]map[string]float64, len(r.clauses))
	for i, c := range r.clauses {
		if c.Exclude {
			continue
		}
		out[i] = map[string]float64{}
		for _, list := range c.lists {
			for _, t := range list {
				out[i][t.Text] = max(out[i][t.Text], t.weight*t.idf)
			}
		}
		if c.found == nil {
			continue
		}
		for _, variants := range c.Words {
			for _, v := range variants {
				out[i][v.Term] = c.idf / float64(len(c.Words))
			}
		}
	}
	return out
}

// Highlighter makes one for the query that had these results; without results all words of the query count the same.
func (r Results) Highlighter(query string) *Highlighter {
	h := &Highlighter{terms: map[string]word{}}
	add := func(term string, w word) {
		if known, ok := h.terms[term]; !ok || known.weight < w.weight {
			h.terms[term] = w
		}
	}
	for i, c := range analysis.Parse(query).Clauses {
		if c.Exclude {
			continue
		}
		for _, variants := range c.Words {
			for _, v := range variants {
				w := word{clause: i}
				if r.weights == nil {
					w.weight = v.Weight
				}
				if c.Prefix {
					h.prefixes = append(h.prefixes, prefix{v.Term, w})
				} else {
					add(v.Term, w)
				}
			}
		}
		if r.weights != nil {
			for term, weight := range r.weights[i] {
				add(term, word{i, weight})
			}
		}
	}
	for term := range h.terms {
		h.begin.Add(term)
	}
	for _, p := range h.prefixes {
		h.begin.Add(p.text)
	}
	return h
}

// find is what a term is to the query.
func (h *Highlighter) find(term string) (word, bool) {
	if w, ok := h.terms[term]; ok {
		return w, true
	}
	i := slices.IndexFunc(h.prefixes, func(p prefix) bool { return strings.HasPrefix(term, p.text) })
	if i < 0 {
		return word{}, false
	}
	return h.prefixes[i].word, true
}

// Mark finds the query's words in a text: half-open ranges of its bytes, in order, that neither overlap nor touch. best is the
// sentence in which they count most, each clause once; of equal ones it is the first. The sentences end at the bytes of ends.
func (h *Highlighter) Mark(text string, ends []int) (ranges [][2]int, best int) {
	sentences := make([]map[int]float64, len(ends)) // what each clause counts
	for _, t := range analysis.TokensLike(text, &h.begin) {
		w, found := h.find(t.Term)
		if !found {
			continue
		}
		ranges = append(ranges, [2]int{t.Start, t.End})
		i, _ := slices.BinarySearch(ends, t.Start+1)
		if i == len(ends) {
			continue
		}
		if sentences[i] == nil {
			sentences[i] = map[int]float64{}
		}
		sentences[i][w.clause] = max(sentences[i][w.clause], w.weight)
	}
	most := 0.0
	for i, clauses := range sentences {
		sum := 0.0
		for _, weight := range clauses {
			sum += weight
		}
		if sum > most*(1+1e-9) { // a sum in another order may differ by its last bits
			most, best = sum, i
		}
	}
	slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
	return joined(ranges), best
}

// joined are ranges in order, with those that overlap or touch made one.
func joined(ranges [][2]int) [][2]int {
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && r[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], r[1])
		} else {
			out = append(out, r)
		}
	}
	return out
}
