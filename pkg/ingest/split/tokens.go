package split

import (
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

// runRunes bounds what is encoded at a time: byte-pair encoding is quadratic in a run without a word break.
const runRunes = 256

// tokenCounter counts tokens of cl100k_base.
type tokenCounter struct {
	codec tokenizer.Codec
}

func newTokenCounter() (*tokenCounter, error) {
	codec, err := tokenizer.Get(tokenizer.Cl100kBase)
	if err != nil {
		return nil, err
	}
	return &tokenCounter{codec: codec}, nil
}

// count is the number of tokens of text.
func (t *tokenCounter) count(text string) int {
	total := 0
	for len(text) > 0 {
		end := runEnd(text)
		n, err := t.codec.Count(text[:end])
		if err != nil {
			n = estimateTokens(text[:end])
		}
		total += n
		text = text[end:]
	}
	return total
}

// runEnd is where the first stretch of text ends that has no run of more than runRunes characters.
func runEnd(text string) int {
	runes := 0
	for i, c := range text {
		if c == ' ' || c == '\n' || c == '.' || c == ',' || c == '。' || c == '，' {
			runes = 0
			continue
		}
		if runes++; runes > runRunes {
			return i
		}
	}
	return len(text)
}

func countChars(text string) int { return utf8.RuneCountInString(text) }

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
