package textindex

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest/textindex/analysis"
)

// Highlighter finds the words of a query in texts.
type Highlighter struct {
	terms    map[string]bool
	prefixes []string
}

// Highlighter makes one for the query that had these results.
func (r Results) Highlighter(query string) *Highlighter {
	h := &Highlighter{terms: map[string]bool{}}
	for _, c := range analysis.Parse(query).Clauses {
		if c.Exclude {
			continue
		}
		for _, word := range c.Words {
			for _, v := range word {
				if c.Prefix {
					h.prefixes = append(h.prefixes, v.Term)
				} else {
					h.terms[v.Term] = true
				}
			}
		}
	}
	for _, term := range r.corrected {
		h.terms[term] = true
	}
	return h
}

// Ranges are where the query's words stand in a text: half-open ranges of its characters (Unicode code points), in order, that
// neither overlap nor touch.
func (h *Highlighter) Ranges(text string) [][2]int {
	var found [][2]int // of bytes
	for _, t := range analysis.Tokens(text) {
		if h.terms[t.Term] || slices.ContainsFunc(h.prefixes, func(p string) bool { return strings.HasPrefix(t.Term, p) }) {
			found = append(found, [2]int{t.Start, t.End})
		}
	}
	slices.SortFunc(found, func(a, b [2]int) int { return a[0] - b[0] })
	out := [][2]int{}
	at, chars := 0, 0 // bytes that were counted, and their characters
	count := func(to int) int {
		if to > at {
			chars += utf8.RuneCountInString(text[at:to])
			at = to
		}
		return chars
	}
	for i := 0; i < len(found); {
		begin, end := found[i][0], found[i][1]
		for i++; i < len(found) && found[i][0] <= end; i++ {
			end = max(end, found[i][1])
		}
		out = append(out, [2]int{count(begin), count(end)})
	}
	return out
}
