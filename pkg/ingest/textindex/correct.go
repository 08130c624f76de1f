package textindex

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
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
	// nearScan is how many terms are gone through in search of those that are one edit away.
	nearScan = 1024
	// denseFrom is behind the characters of the scripts without spaces that lie together in Unicode.
	denseFrom = 0xA000
	// surrogates and surrogatesEnd bound what are no characters.
	surrogates, surrogatesEnd = 0xD800, 0xE000
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
	terms := make([][]part.Term, len(r.parts))
	for i, p := range r.parts {
		var err error
		if terms[i], err = near(ctx, p, word); err != nil {
			return err
		}
	}
	if c.corrected = r.standIn(c, terms); len(c.corrected) > 0 || utf8.RuneCountInString(word) < containedRunes {
		return nil
	}
	for i, p := range r.parts {
		err := p.Containing(ctx, word, func(e *part.Entry) {
			if e.Text[0] != analysis.StemMark[0] {
				terms[i] = append(terms[i], e.Term())
			}
		})
		if err != nil {
			return err
		}
	}
	r.standIn(c, terms)
	return nil
}

// near finds the terms of a part that are one edit away from a word. Those that begin otherwise than the word are looked up, one
// for each character that terms go on with; as soon as few begin like the word, these are gone through.
func near(ctx context.Context, p *part.Part, word string) (out []part.Term, err error) {
	found := map[string]bool{}
	add := func(t part.Term) {
		if !found[t.Text] && t.Text != word {
			found[t.Text] = true
			out = append(out, t)
		}
	}
	look := func(texts ...string) {
		for _, text := range texts {
			if t, e := p.Term(ctx, text); e != nil {
				err = e
			} else if t.Segments > 0 {
				add(t)
			}
		}
	}
	for at, r := range word {
		before, behind := word[:at], word[at+utf8.RuneLen(r):]
		if at > 0 && p.Between(before, before+"\xff") <= nearScan {
			return out, errors.Join(err, throughNear(ctx, p, before, word, add))
		}
		look(before + behind)
		if next, size := utf8.DecodeRuneInString(behind); size > 0 {
			look(before + string(next) + string(r) + behind[size:])
		}
		for c := range goingOn(ctx, p, before, &err) {
			look(before+string(c)+behind, before+string(c)+word[at:])
		}
	}
	return out, errors.Join(err, throughNear(ctx, p, word, word, add))
}

// throughNear gives the terms with a beginning that are one edit away from a word.
func throughNear(ctx context.Context, p *part.Part, beginning, word string, give func(part.Term)) error {
	return p.From(ctx, beginning, func(e *part.Entry) bool {
		if !bytes.HasPrefix(e.Text, []byte(beginning)) {
			return false
		}
		if oneEdit(e.Text, word) {
			give(e.Term())
		}
		return true
	})
}

// goingOn are the characters that terms go on with behind a beginning, except those of scripts without spaces: no term has them
// beside letters.
func goingOn(ctx context.Context, p *part.Part, beginning string, err *error) iter.Seq[rune] {
	return func(yield func(rune) bool) {
		for from := rune(analysis.StemMark[0] + 1); from <= unicode.MaxRune && *err == nil; {
			r := rune(-1)
			*err = p.From(ctx, beginning+string(from), func(e *part.Entry) bool {
				if bytes.HasPrefix(e.Text, []byte(beginning)) {
					r, _ = utf8.DecodeRune(e.Text[len(beginning):])
				}
				return false
			})
			switch {
			case r < from:
				return
			case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
				from = denseFrom
				if r >= denseFrom {
					from = r + 1
				}
				continue
			}
			if !yield(r) {
				return
			}
			if from = r + 1; from == surrogates {
				from = surrogatesEnd
			}
		}
	}
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
