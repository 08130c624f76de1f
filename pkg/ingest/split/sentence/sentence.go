// Package sentence finds where sentences end.
package sentence

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/sentences"
)

// abbreviations end with a full stop that ends no sentence (lower case, without the stop).
var abbreviations = map[string]bool{
	"dr": true, "mr": true, "mrs": true, "ms": true, "prof": true, "st": true, "sr": true, "jr": true, "rev": true, "gen": true,
	"col": true, "capt": true, "lt": true, "sgt": true, "hon": true, "vs": true, "e.g": true, "i.e": true, "cf": true, "viz": true,
	"fig": true, "figs": true, "no": true, "nos": true, "eq": true, "eqs": true, "sec": true, "ch": true, "vol": true, "pp": true,
	"ed": true, "eds": true, "et al": true, "al": true, "approx": true, "dept": true, "inc": true, "ltd": true, "corp": true,
	"jan": true, "feb": true, "mar": true, "apr": true, "jun": true, "jul": true, "aug": true, "sep": true, "sept": true, "oct": true, "nov": true, "dec": true,
}

// Cut cuts text into sentences (UAX #29), each with the white space behind it.
// Their concatenation is the text. Three cases that the rules get wrong are mended:
// abbreviations, an opening quotation mark left at a sentence's end, and a closing one left for the next.
// A single line end is taken for a space: it ends a line, not a sentence.
func Cut(text string) []string {
	flat := flatten(text)
	var ends []int
	at := 0
	for it := sentences.FromString(flat); it.Next(); {
		at += len(it.Value())
		ends = append(ends, at)
	}
	var out []string
	start := 0
	for i, end := range ends {
		if end <= start {
			continue
		}
		if i < len(ends)-1 {
			end = mend(text, start, end)
			if end <= start || abbreviated(text[start:end]) {
				continue
			}
		}
		out = append(out, text[start:end])
		start = end
	}
	if start < len(text) {
		out = append(out, text[start:])
	}
	return out
}

// flatten turns single line ends into spaces, byte for byte; two in a row stay a break.
func flatten(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	flat := []byte(text)
	for i, c := range flat {
		if c == '\n' && (i == 0 || text[i-1] != '\n') && (i+1 == len(text) || text[i+1] != '\n') {
			flat[i] = ' '
		}
	}
	return string(flat)
}

// mend moves the end of a sentence: behind closing marks that follow, before opening marks that it ends with.
func mend(text string, start, end int) int {
	for {
		c, size := utf8.DecodeRuneInString(text[end:])
		if size == 0 || !Closing(c) {
			break
		}
		end += size
	}
	for end > start {
		c, size := utf8.DecodeLastRuneInString(text[start:end])
		if !opening(c) {
			break
		}
		end -= size
	}
	return end
}

// Closing reports whether a character ends what stands before it.
func Closing(c rune) bool {
	return strings.ContainsRune("”’」』）】》〉〕］｝。！？，、；：…", c)
}

func opening(c rune) bool { return strings.ContainsRune("“‘「『（【《〈〔［｛", c) }

// abbreviated tells whether a sentence seems to end only because of an abbreviation or an initial.
func abbreviated(sentence string) bool {
	s := strings.TrimRightFunc(sentence, unicode.IsSpace)
	if s == sentence || !strings.HasSuffix(s, ".") || strings.Contains(sentence[len(s):], "\n\n") {
		return false
	}
	s = strings.TrimSuffix(s, ".")
	word := s[strings.LastIndexFunc(s, func(c rune) bool { return unicode.IsSpace(c) || c == '(' || c == '"' || c == '“' })+1:]
	if len(word) == 1 && word[0] >= 'A' && word[0] <= 'Z' && word != "I" {
		return true
	}
	return abbreviations[strings.ToLower(word)]
}
