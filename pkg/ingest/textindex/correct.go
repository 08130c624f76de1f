package textindex

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest/textindex/analysis"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

const (
	// correctRunes is the shortest word that is corrected: in shorter ones one edit makes another word.
	correctRunes = 4
	// containedRunes is the shortest word that is looked for inside of longer terms: as a part of a compound, or of words that a
	// document's reader could not part.
	containedRunes = 5
	// corrections is how many terms stand in for a word that no segment has.
	corrections = 3
	// correctedWeight is what a correction counts less than the word itself.
	correctedWeight = 0.6
)

// correctable reports whether a word may be looked for by terms that are one edit away.
func correctable(c analysis.Clause) (word string, ok bool) {
	if c.Exclude || c.Prefix || c.Phrase || len(c.Words) != 1 || len(c.Words[0]) == 0 {
		return "", false
	}
	word = c.Words[0][0].Term
	if utf8.RuneCountInString(word) < correctRunes {
		return "", false
	}
	for _, r := range word {
		if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai) || !unicode.IsLetter(r) {
			return "", false
		}
	}
	return word, true
}

// correct gives a clause the most frequent terms that are one edit away from its word, which no part has; without any, the
// most frequent ones that contain it.
func (r *ranking) correct(ctx context.Context, c *clause, word string) error {
	contained := utf8.RuneCountInString(word) >= containedRunes
	near, within := make([][]part.Term, len(r.parts)), make([][]part.Term, len(r.parts))
	for i, p := range r.parts {
		err := p.Scan(ctx, func(text []byte, t func() part.Term) bool {
			switch {
			case text[0] == analysis.StemMark[0]:
			case oneEdit(text, word):
				near[i] = append(near[i], t())
			case contained && bytes.Contains(text, []byte(word)):
				within[i] = append(within[i], t())
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	if c.corrected = r.standIn(c, near); len(c.corrected) == 0 {
		r.standIn(c, within)
	}
	return nil
}

// standIn gives a clause the most frequent of terms, which are listed by part, and returns them.
func (r *ranking) standIn(c *clause, terms [][]part.Term) []string {
	segments := map[string]int{}
	for _, t := range slices.Concat(terms...) {
		segments[t.Text] += t.Segments
	}
	best := slices.SortedFunc(maps.Keys(segments), func(a, b string) int {
		return cmp.Or(-cmp.Compare(segments[a], segments[b]), cmp.Compare(a, b))
	})
	best = best[:min(len(best), corrections)]
	if len(best) == 0 {
		return nil
	}
	idf := r.rarity(min(segments[best[0]], r.segments)) // of all: a rarer one is no likelier
	for i := range terms {
		for _, t := range terms[i] {
			if slices.Contains(best, t.Text) {
				c.lists[i] = append(c.lists[i], weighted{t, correctedWeight, idf})
			}
		}
	}
	return best
}

// oneEdit reports whether a term is a word with one character added, left out, replaced, or exchanged with the next.
func oneEdit(term []byte, word string) bool {
	if d := len(term) - len(word); d > utf8.UTFMax || -d > utf8.UTFMax {
		return false
	}
	begin := 0
	for begin < len(term) && begin < len(word) && term[begin] == word[begin] {
		begin++
	}
	for begin > 0 && (begin < len(term) && !utf8.RuneStart(term[begin]) || begin < len(word) && !utf8.RuneStart(word[begin])) {
		begin--
	}
	a, b := term[begin:], word[begin:]
	end := 0
	for end < len(a) && end < len(b) && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	for end > 0 && !utf8.RuneStart(a[len(a)-end]) {
		end--
	}
	a, b = a[:len(a)-end], b[:len(b)-end]
	if len(a) > 2*utf8.UTFMax || len(b) > 2*utf8.UTFMax {
		return false
	}
	x, y := utf8.RuneCount(a), utf8.RuneCountInString(b)
	if x <= 1 && y <= 1 {
		return x+y > 0
	}
	if x != 2 || y != 2 {
		return false
	}
	_, first := utf8.DecodeRune(a)
	_, second := utf8.DecodeRuneInString(b)
	return bytes.Equal(a[:first], []byte(b[second:])) && bytes.Equal(a[first:], []byte(b[:second]))
}

// suggest is the query with its corrected words; empty when none was.
func (r *ranking) suggest(query string) string {
	out := query
	for _, c := range r.clauses {
		if len(c.corrected) > 0 {
			out = strings.Replace(out, c.Text, c.corrected[0], 1)
		}
	}
	if out == query {
		return ""
	}
	return out
}
