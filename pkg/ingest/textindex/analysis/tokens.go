// Package analysis turns texts and queries into the terms of a full-text index.
//
// The same rules cut and fold both, so what somebody types meets what a text says:
// words, their stems by the language of the text, bigrams where a script has no spaces, codes and their parts.
// All functions are pure and may be called side by side.
package analysis

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxTerm is the longest term in bytes. Of a longer one its first 40 bytes and a hash of it are kept.
const MaxTerm = 64

// StemMark begins a term that is a stem. No text can contain it: it is a separator.
const StemMark = "\x01"

// Token is one term of a text.
type Token struct {
	Term       string // what the index holds; never empty, at most MaxTerm bytes; may share the text's memory
	Position   int    // of the word in the text, from 0; variants of one word share it
	Start, End int    // bytes of the text that it stands for
}

// Tokens returns the terms of a text in order of their positions. Invalid UTF-8 and NUL are separators.
//
// A word gives itself and its stem; one in Hangul its bigrams too; a run without spaces (Han, kana, Thai)
// its overlapping bigrams and its last character; a code as INV-2024/17 the whole at the position of its
// first part, and its parts.
func Tokens(text string) []Token { return TokensLike(text, nil) }

// TokensLike is Tokens without words none of whose terms has one of the beginnings; nil: with all. Its positions mean nothing.
func TokensLike(text string, like *Beginnings) []Token {
	w := writer{text: text, like: like, out: make([]Token, 0, len(text)/4+4)}
	s := scanner{text: text}
	for u, ok := s.next(); ok; u, ok = s.next() {
		w.unit(u)
	}
	return w.out
}

// Beginnings are first characters of terms. A word begins as its terms do, but for accents and the stems of Arabic: it is left
// out by its first character where that is so.
type Beginnings [0x500]bool

// Add adds that of a term.
func (b *Beginnings) Add(term string) {
	r, _ := utf8.DecodeRuneInString(strings.TrimPrefix(term, StemMark))
	if int(r) < len(b) {
		b[r] = true
	}
}

// of tells whether a word may have a term with one of the beginnings.
func (b *Beginnings) of(word string) bool {
	r, _ := utf8.DecodeRuneInString(word)
	switch {
	case r < utf8.RuneSelf:
		return b[unicode.ToLower(r)]
	case r >= 'А' && r <= 'я' && !strings.ContainsRune("ЙйИиУу", r): // which marks make others of
		return b[unicode.ToLower(r)]
	}
	return true
}

// writer collects the tokens of a text.
type writer struct {
	text     string
	spoken   spoken
	heard    bool        // spoken is known
	like     *Beginnings // nil: all
	out      []Token
	position int
}

// add adds a term at the present position.
func (w *writer) add(term string, start, end int) {
	if term != "" {
		w.out = append(w.out, Token{term, w.position, start, end})
	}
}

// step goes on to the next position if the present one has a token.
func (w *writer) step() {
	if n := len(w.out); n > 0 && w.out[n-1].Position == w.position {
		w.position++
	}
}

func (w *writer) unit(u unit) {
	switch u.kind {
	case dense, densest:
		grams(w.text[u.start:u.end], func(term string, start, end int) {
			w.add(term, u.start+start, u.start+end)
			w.step()
		})
	case number:
		exact, bare := numberTerms(w.text[u.start:u.end])
		w.add(exact, u.start, u.end)
		w.add(bare, u.start, u.end)
		w.step()
	case code:
		w.add(whole(w.text[u.start:u.end]), u.start, u.end)
		for _, p := range u.pieces {
			if p.over && p.start == u.start && p.end == u.end {
				w.stem(p)
				continue
			}
			w.word(p)
			if !p.over {
				w.step()
			}
		}
		w.step()
	default:
		w.word(u.pieces[0])
		w.step()
	}
}

// word adds a word with its variants.
func (w *writer) word(p piece) {
	word := w.text[p.start:p.end]
	if !p.hangul {
		if w.like != nil && !w.like.of(word) {
			return
		}
		e := look(w.language(word), word)
		w.add(e.exact, p.start, p.end)
		w.add(e.stem, p.start, p.end)
		return
	}
	exact := look(unknown, word).exact
	w.add(exact, p.start, p.end)
	for _, g := range syllables(exact) {
		w.add(g, p.start, p.end)
	}
}

// stem adds a word's stem only.
func (w *writer) stem(p piece) {
	word := w.text[p.start:p.end]
	w.add(look(w.language(word), word).stem, p.start, p.end)
}

// language is that of a word of the text.
func (w *writer) language(word string) language {
	if !w.heard {
		w.spoken, w.heard = listen(w.text), true
	}
	return w.spoken.of(word)
}

// whole returns the term of a code, or nothing if only its signs are left.
func whole(s string) string {
	t := term(s)
	if strings.Trim(t, `-_/.@:+#\'&`) == "" {
		return ""
	}
	return t
}

// numberTerms returns a number as it stands, and its digits alone.
func numberTerms(s string) (exact, bare string) {
	return s, strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}

// grams gives the bigrams of a run, each at its first character, and at the end the last character alone.
// A character has its marks with it.
func grams(run string, give func(term string, start, end int)) {
	s := scanner{text: run}
	unit := func(at int) int { // the end of the character at a place
		_, size := s.peek(at)
		for at += size; at < len(run); at += size {
			var k class
			if k, size = s.peek(at); k != mark && k != skipped {
				break
			}
		}
		return at
	}
	spell := func(s string) string {
		for _, r := range s {
			if (r < 0x4E00 || r > 0x9FFF) && (r < 0x3041 || r > 0x3096) && (r < 0x30A1 || r > 0x30FE) {
				return look(unknown, s).exact
			}
		}
		return s
	}
	first, second := 0, unit(0)
	for second < len(run) {
		third := unit(second)
		give(spell(run[first:third]), first, third)
		first, second = second, third
	}
	give(spell(run[first:]), first, len(run))
}

// syllables returns the bigrams of a word in Hangul; none if it has not more than two characters.
func syllables(word string) []string {
	var out []string
	at := make([]int, 0, 16)
	for i := range word {
		at = append(at, i)
	}
	if len(at) <= 2 {
		return nil
	}
	at = append(at, len(word))
	for i := 0; i+2 < len(at); i++ {
		out = append(out, word[at[i]:at[i+2]])
	}
	return out
}
