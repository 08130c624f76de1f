package split

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

const (
	// runRunes bounds what is encoded at a time: byte-pair encoding is quadratic in a run without a word break.
	runRunes = 256
	// cachedBytes is the longest word whose count is remembered.
	cachedBytes = 32
	// cachedWords bounds the memory of counts; it is emptied when full.
	cachedWords = 32 << 10
)

// tokenCounter counts tokens of cl100k_base. It is safe for concurrent use.
// It cuts text into words by the vocabulary's own rule, by hand, and remembers the counts of words:
// the library's way, a regular expression with look-ahead over the whole text, takes many times as long.
type tokenCounter struct {
	codec *codec.Codec
	mu    sync.RWMutex
	known map[string]int
}

// newTokenCounter asks for the one vocabulary: tokenizer.Get would link all five, 9 MB in a binary.
func newTokenCounter() *tokenCounter {
	return &tokenCounter{codec: codec.NewCl100kBase(), known: make(map[string]int)}
}

// count is the number of tokens of text; exact, but for runs of more than runRunes characters.
func (t *tokenCounter) count(text string) int {
	total := 0
	for len(text) > 0 {
		end := wordEnd(text)
		total += t.word(text[:end])
		text = text[end:]
	}
	return total
}

// word is the number of tokens of one word.
func (t *tokenCounter) word(w string) int {
	if len(w) == 1 {
		return 1
	}
	if len(w) > cachedBytes {
		return t.encode(w)
	}
	t.mu.RLock()
	n, ok := t.known[w]
	t.mu.RUnlock()
	if ok {
		return n
	}
	n = t.encode(w)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= cachedWords {
		clear(t.known)
	}
	t.known[strings.Clone(w)] = n
	return n
}

// encode asks the library, at most runRunes characters at a time.
func (t *tokenCounter) encode(w string) int {
	total := 0
	for len(w) > 0 {
		end, runes := len(w), 0
		for i := range w {
			if runes == runRunes {
				end = i
				break
			}
			runes++
		}
		n, err := t.codec.Count(w[:end])
		if err != nil {
			n = estimateTokens(w[:end])
		}
		total += n
		w = w[end:]
	}
	return total
}

// wordEnd is where the first word of text ends by the rule of cl100k_base:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func wordEnd(text string) int {
	c, size := utf8.DecodeRuneInString(text)
	if c == '\'' {
		if n := contraction(text); n > 0 {
			return n
		}
	}
	switch {
	case unicode.IsLetter(c):
		return size + span(text[size:], unicode.IsLetter)
	case unicode.IsNumber(c):
		return numberEnd(text)
	}
	next, nextSize := utf8.DecodeRuneInString(text[size:])
	if nextSize > 0 && unicode.IsLetter(next) && c != '\r' && c != '\n' {
		return size + span(text[size:], unicode.IsLetter)
	}
	if !unicode.IsSpace(c) {
		return signsEnd(text, 0)
	}
	if c == ' ' && nextSize > 0 && sign(next) {
		return signsEnd(text, size)
	}
	return spaceEnd(text)
}

// contraction is the length of 's, 't, 're, 've, 'm, 'll or 'd at the start; 0 when there is none.
func contraction(text string) int {
	for _, c := range []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if len(text) >= len(c) && strings.EqualFold(text[:len(c)], c) {
			return len(c)
		}
	}
	return 0
}

func numberEnd(text string) int {
	count := 0
	return span(text, func(c rune) bool {
		count++
		return count <= 3 && unicode.IsNumber(c)
	})
}

// signsEnd is the end of a run of signs that begins at from, with the line ends behind it.
func signsEnd(text string, from int) int {
	end := from + span(text[from:], sign)
	return end + span(text[end:], func(c rune) bool { return c == '\r' || c == '\n' })
}

// spaceEnd is the end of white space: behind its last line end, else before the last space, which belongs to the next word.
func spaceEnd(text string) int {
	end := span(text, unicode.IsSpace)
	if at := strings.LastIndexAny(text[:end], "\r\n"); at >= 0 {
		return at + 1
	}
	_, last := utf8.DecodeLastRuneInString(text[:end])
	if end == len(text) || end == last {
		return end
	}
	return end - last
}

func sign(c rune) bool { return !unicode.IsSpace(c) && !unicode.IsLetter(c) && !unicode.IsNumber(c) }

// span is the length of the run of characters at the start of text that are of a kind.
func span(text string, of func(rune) bool) int {
	for i, c := range text {
		if !of(c) {
			return i
		}
	}
	return len(text)
}

// estimateTokens is a rough count: four bytes of ASCII, or one character beyond it, to a token.
func estimateTokens(text string) int {
	ascii, other := 0, 0
	for _, c := range text {
		if c < utf8.RuneSelf {
			ascii++
		} else {
			other++
		}
	}
	return (ascii+3)/4 + other
}
